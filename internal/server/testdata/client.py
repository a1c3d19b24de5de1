# Stands in for a client: rebuilds failures and reads handles from pickles, with
# the constructors and classes that clients have. Reads one JSON object a line,
# {"pickle": base64} or {"exception": base64}, and prints what came of it.
import base64
import enum
import json
import pickle
import sys
import types


def module(name, **content):
    m = types.ModuleType(name)
    m.__dict__.update(content)
    sys.modules[name] = m
    return m


class ClusterStatus(enum.Enum):
    INIT = 'INIT'
    UP = 'UP'
    STOPPED = 'STOPPED'
    AUTOSTOPPING = 'AUTOSTOPPING'
    PENDING = 'PENDING'


class CloudVmRayResourceHandle:

    def __setstate__(self, state):
        self.__dict__.update(state)


class Resources:

    @classmethod
    def _from_yaml_config_single(cls, config):
        r = cls()
        r.config = config
        return r


def exception(name, signature):
    """A class whose constructor takes exactly these arguments."""
    scope = {}
    exec(f'class {name}(Exception):\n'
         f'  def __init__(self, {signature}):\n'
         f'    super().__init__(locals().get("message", "{name}"))\n'
         f'    self.given = {{k: v for k, v in locals().items() if k not in ("self", "__class__")}}\n', scope)
    return scope[name]


special = {
    'ResourcesUnavailableError': 'message, no_failover=False, failover_history=None',
    'KubeAPIUnreachableError': 'message, no_failover=False, failover_history=None',
    'ClusterNotUpError': 'message, cluster_status, handle=None',
    'CommandError': 'returncode, command, error_msg, detailed_reason, failure=None',
    'CommandFailureException': 'command, failure, error_msg, detailed_reason=None',
    'CloudError': 'message, cloud_provider, error_type',
    'ExecutionRetryableError': 'message, hint, retry_wait_seconds',
    'WorkspaceAmbiguousError': 'accessible, note=None',
    'KubernetesValidationError': 'path, message',
    'ProvisionPrechecksError': 'reasons',
    'FetchClusterInfoError': 'reason',
}
sky_exceptions = {n: exception(n, s) for n, s in special.items()}


def rebuild(data):
    assert list(data) == ['type', 'message', 'args', 'attributes', 'stacktrace'], list(data)
    import builtins
    name = data['type']
    cls = getattr(builtins, name, None) or sky_exceptions.get(name)
    if cls is None:  # one of the clients' plain classes
        cls = type(name, (Exception,), {})
    e = cls(*data['args'], **data['attributes'])
    given = getattr(e, 'given', {})
    return {
        'class': type(e).__name__,
        'text': str(e.args[0]) if e.args else '',
        'builtin': hasattr(builtins, name),
        'given': {k: plain(v) for k, v in given.items()},
    }


def plain(v):
    if isinstance(v, enum.Enum):
        return f'{type(v).__name__}.{v.name}'
    if isinstance(v, Resources):
        return {'Resources': plain(v.config)}
    if isinstance(v, CloudVmRayResourceHandle):
        return {'Handle': plain(v.__dict__)}
    if isinstance(v, tuple):
        return {'tuple': [plain(x) for x in v]}
    if isinstance(v, list):
        return [plain(x) for x in v]
    if isinstance(v, dict):
        return {k: plain(x) for k, x in v.items()}
    return v


module('sky')
module('sky.utils')
module('sky.utils.status_lib', ClusterStatus=ClusterStatus)
module('sky.backends')
module('sky.backends.cloud_vm_ray_backend', CloudVmRayResourceHandle=CloudVmRayResourceHandle)
module('sky.resources', Resources=Resources)

for line in sys.stdin:
    question = json.loads(line)
    if 'exception' in question:
        print(json.dumps(rebuild(pickle.loads(base64.b64decode(question['exception'])))))
    else:
        print(json.dumps(plain(pickle.loads(base64.b64decode(question['pickle'])))))
