"""Writes what a task does, step by step, for `sky bench show`.

    import sky_callback
    sky_callback.init(total_steps=100)
    for batch in sky_callback.step_iterator(batches):
        train(batch)

`with sky_callback.step():` and step_begin()/step_end() do the same by hand. Only the
process with global_rank 0 writes. It needs nothing but Python 3.

Trainers of frameworks take a callback, and init() is not called then:

    model.fit(..., callbacks=[sky_callback.SkyKerasCallback()])
    lightning.Trainer(..., callbacks=[sky_callback.SkyLightningCallback()])
    transformers.Trainer(..., callbacks=[sky_callback.SkyTransformersCallback()])
"""
import atexit
import contextlib
import importlib
import json
import os
import sys
import threading
import time

_EVERY = 5  # seconds
_writer = None


class _Writer:

    def __init__(self, log_dir, total_steps, warmup_steps):
        base = os.path.expanduser(log_dir or os.environ.get('SKY_CALLBACK_DIR') or '~/sky_benchmark_dir')
        now = time.time()
        name = time.strftime('%Y-%m-%d-%H-%M-%S', time.gmtime(now)) + '-%06d' % (now % 1 * 1e6)
        self.dir = os.path.join(base, 'sky-callback-' + name)
        os.makedirs(self.dir, exist_ok=True)
        self.boot, self.create = _process_times(now)
        self.total, self.warmup = total_steps, warmup_steps
        self.steps, self.first, self.last = 0, None, None
        self.warm = now if warmup_steps == 0 else None
        self.lock, self.changed = threading.Lock(), True
        self.write()
        threading.Thread(target=self._keep, daemon=True).start()
        atexit.register(self.write)

    def step_end(self):
        with self.lock:
            self.last, self.changed = time.time(), True
            self.steps += 1
            if self.first is None:
                self.first = self.last
            if self.steps == self.warmup:
                self.warm = self.last

    def write(self):
        with self.lock:
            if not self.changed:
                return
            each = whole = None
            if self.warm is not None and self.steps > self.warmup:
                each = (self.last - self.warm) / (self.steps - self.warmup)
                if self.total is not None:
                    whole = self.warm - self.create + each * (self.total - self.warmup)
            path = os.path.join(self.dir, 'summary.json')
            with open(path + '.new', 'w') as f:
                json.dump({
                    'boot_time': self.boot, 'create_time': self.create, 'warmup_steps': self.warmup, 'total_steps': self.total,
                    'num_steps': self.steps, 'first_step_time': self.first, 'warmup_end_time': self.warm, 'last_step_time': self.last,
                    'time_per_step': each, 'estimated_total_time': whole,
                }, f)
            os.replace(path + '.new', path)  # nobody reads a half
            self.changed = False

    def _keep(self):
        while True:
            time.sleep(_EVERY)
            self.write()


def _process_times(now):
    """When this machine and this process started."""
    try:
        with open('/proc/stat') as f:
            boot = next(float(line.split()[1]) for line in f if line.startswith('btime '))
        with open('/proc/self/stat') as f:
            ticks = int(f.read().rsplit(')', 1)[1].split()[19])
        return boot, min(now, boot + ticks / os.sysconf('SC_CLK_TCK'))
    except (OSError, ValueError, StopIteration, IndexError):
        return 0, now  # no Linux


def init(global_rank=0, log_dir=None, total_steps=None, warmup_steps=1):
    """Begins; twice is an error."""
    global _writer
    if _writer is not None:
        raise RuntimeError('sky_callback.init was called before')
    if warmup_steps < 0 or (total_steps is not None and total_steps < warmup_steps):
        raise ValueError('warmup_steps must be between 0 and total_steps')
    if global_rank == 0:
        _writer = _Writer(log_dir, total_steps, warmup_steps)


def step_begin():
    """A step begins. Times are taken when steps end."""


def step_end():
    """A step has ended."""
    if _writer is not None:
        _writer.step_end()


@contextlib.contextmanager
def step():
    """A step, as the body of a with statement."""
    step_begin()
    yield
    step_end()


def step_iterator(iterable):
    """Goes through what it is given; each turn of the loop is a step."""
    for item in iterable:
        step_begin()
        yield item
        step_end()


class _Adapter:
    """What the callbacks share. total_steps is worked out from the trainer if it is None."""

    def __init__(self, log_dir=None, total_steps=None):
        super().__init__()
        self.log_dir, self.total_steps = log_dir, total_steps
        self._steps = None  # of the training that is going on, where its steps are written

    def _begin(self, left):
        total = left if self.total_steps is None else self.total_steps
        if total is not None:
            total = max(0, int(total))
        self._steps = _Writer(self.log_dir, total, 1 if total is None else min(1, total))

    def _step_end(self):
        if self._steps is not None:
            self._steps.step_end()

    def _end(self):
        if self._steps is not None:
            self._steps.write()
        self._steps = None


def _bases(*modules):
    """Those of some modules that are imported, else the first that can be."""
    found = [sys.modules[m] for m in modules if m in sys.modules]
    for m in modules:
        if not found:
            try:
                found.append(importlib.import_module(m))
            except ImportError:
                if m == modules[-1]:
                    raise
    return found


def _keras():
    # Of TensorFlow and Keras, what is imported: Keras alone may have another backend.
    base = _bases('tensorflow', 'keras')[0] if 'tensorflow' in sys.modules else _bases('keras', 'tensorflow')[0]

    class SkyKerasCallback(_Adapter, getattr(base, 'keras', base).callbacks.Callback):
        """For model.fit of Keras."""
        __qualname__ = 'SkyKerasCallback'
        _counts = False  # the next epoch is the first of a training

        def _chief(self):
            together = getattr(getattr(self.model, 'distribute_strategy', None), 'extended', None)
            several = getattr(together, '_in_multi_worker_mode', None)
            return several is None or not several() or together.should_checkpoint

        def on_train_begin(self, logs=None):
            self._counts = True  # only the epoch tells where a training goes on

        def on_epoch_begin(self, epoch, logs=None):
            if self._counts and self._chief():
                epochs, steps = self.params.get('epochs'), self.params.get('steps')
                self._begin(None if epochs is None or steps is None else (epochs - epoch) * steps)
            self._counts = False

        def on_train_batch_end(self, batch, logs=None):
            self._step_end()

        def on_train_end(self, logs=None):
            self._end()

    return SkyKerasCallback


def _batches_left(trainer):
    """How many batches a trainer of Lightning will take; None: that is not known."""
    batches, each = trainer.num_training_batches, max(1, int(getattr(trainer, 'accumulate_grad_batches', None) or 1))
    if batches == float('inf'):
        batches = None
    left = []
    if trainer.max_epochs not in (None, -1) and batches is not None:
        left.append((trainer.max_epochs - (getattr(trainer, 'current_epoch', 0) or 0)) * batches)
    if trainer.max_steps not in (None, -1):
        steps = trainer.max_steps - (getattr(trainer, 'global_step', 0) or 0)
        if batches:  # an epoch ends with a step, whether or not it is full
            epochs, rest = divmod(steps, -(-batches // each))
            left.append(epochs * batches + rest * each)
        else:
            left.append(steps * each)
    return min(left) if left else None


def _lightning():
    bases = dict.fromkeys(m.Callback for m in _bases('lightning.pytorch', 'pytorch_lightning'))

    class SkyLightningCallback(_Adapter, *bases):
        """For trainers of PyTorch Lightning."""
        __qualname__ = 'SkyLightningCallback'

        def on_train_start(self, trainer, pl_module):
            if trainer.global_rank == 0:
                self._begin(_batches_left(trainer))

        def on_train_batch_end(self, trainer, pl_module, *unused, **unnamed):
            self._step_end()

        def on_train_end(self, trainer, pl_module):
            self._end()

    return SkyLightningCallback


def _transformers():

    class SkyTransformersCallback(_Adapter, _bases('transformers')[0].TrainerCallback):
        """For trainers of HuggingFace Transformers."""
        __qualname__ = 'SkyTransformersCallback'

        def on_train_begin(self, args, state, control, **unused):
            if state.is_world_process_zero:
                self._begin(state.max_steps - state.global_step if state.max_steps > 0 else None)

        def on_step_end(self, args, state, control, **unused):
            self._step_end()

        def on_train_end(self, args, state, control, **unused):
            self._end()

    return SkyTransformersCallback


_ADAPTERS = {'SkyKerasCallback': _keras, 'SkyLightningCallback': _lightning, 'SkyTransformersCallback': _transformers}


def __getattr__(name):
    """Imports a framework when its callback is asked for."""
    if name not in _ADAPTERS:
        raise AttributeError('module %r has no attribute %r' % (__name__, name))
    globals()[name] = _ADAPTERS[name]()
    return globals()[name]
