"""Writes what a task does, step by step, for `sky bench show`.

    import sky_callback
    sky_callback.init(total_steps=100)
    for batch in sky_callback.step_iterator(batches):
        train(batch)

`with sky_callback.step():` and step_begin()/step_end() do the same by hand. Only the
process with global_rank 0 writes. It needs nothing but Python 3.
"""
import atexit
import contextlib
import json
import os
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
