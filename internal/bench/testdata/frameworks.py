"""Stand-ins for what trainers of frameworks do with callbacks."""
import sys
import types


def module(name, **has):
    m = types.ModuleType(name)
    m.__dict__.update(has)
    sys.modules[name] = m
    return m


class KerasCallback:

    def __init__(self):
        self.params, self.model = None, None

    def on_train_begin(self, logs=None):
        pass

    on_train_end = on_train_begin

    def on_epoch_begin(self, epoch, logs=None):
        pass

    on_train_batch_begin = on_train_batch_end = on_epoch_end = on_epoch_begin


def keras(name='keras'):
    callbacks = types.SimpleNamespace(Callback=KerasCallback)
    return module('tensorflow', keras=types.SimpleNamespace(callbacks=callbacks)) if name == 'tensorflow' else module('keras', callbacks=callbacks)


def fit(callback, epochs, steps, initial_epoch=0, known=True, model=None):
    callback.params, callback.model = {'epochs': epochs, 'steps': steps if known else None}, model
    callback.on_train_begin()
    for epoch in range(initial_epoch, epochs):
        callback.on_epoch_begin(epoch)
        for batch in range(steps):
            callback.on_train_batch_begin(batch)
            callback.on_train_batch_end(batch, {})
        callback.on_epoch_end(epoch)
    callback.on_train_end()


class LightningCallback:

    def on_train_start(self, trainer, pl_module):
        pass

    on_train_end = on_train_start

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        pass

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        pass


def lightning(*names):
    for name in names or ('lightning.pytorch',):
        if '.' in name:
            module(name.split('.')[0])
        module(name, Callback=type('Callback', (LightningCallback,), {}))


def trainer(max_epochs=None, max_steps=-1, batches=10, each=1, current_epoch=0, global_step=0, global_rank=0):
    return types.SimpleNamespace(max_epochs=max_epochs, max_steps=max_steps, num_training_batches=batches, accumulate_grad_batches=each,
                                 current_epoch=current_epoch, global_step=global_step, global_rank=global_rank)


def train(callback, trainer, batches):
    callback.on_train_start(trainer, None)
    for i in range(batches):
        callback.on_train_batch_start(trainer, None, 'batch', i)
        callback.on_train_batch_end(trainer, None, 'outputs', 'batch', i)
    callback.on_train_end(trainer, None)


class TrainerCallback:

    def on_train_begin(self, args, state, control, **kwargs):
        pass

    on_train_end = on_step_begin = on_step_end = on_substep_end = on_train_begin


def transformers():
    module('transformers', TrainerCallback=TrainerCallback)


def hugging(callback, max_steps, steps, global_step=0, zero=True):
    state = types.SimpleNamespace(max_steps=max_steps, global_step=global_step, is_world_process_zero=zero)
    callback.on_train_begin('args', state, 'control', model=None)
    for _ in range(steps):
        callback.on_step_begin('args', state, 'control', model=None)
        callback.on_substep_end('args', state, 'control', model=None)
        callback.on_step_end('args', state, 'control', model=None)
    callback.on_train_end('args', state, 'control', model=None)
