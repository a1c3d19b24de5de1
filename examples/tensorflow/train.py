"""Trains on all nodes with TensorFlow's MultiWorkerMirroredStrategy."""

import json
import os

nodes = os.environ["SKYPILOT_NODE_IPS"].split()
rank = int(os.environ["SKYPILOT_NODE_RANK"])
# TensorFlow reads it when the strategy is made.
os.environ["TF_CONFIG"] = json.dumps({
    "cluster": {"worker": [f"{ip}:12345" for ip in nodes]},
    "task": {"type": "worker", "index": rank},
})

import tensorflow as tf  # noqa: E402

strategy = tf.distribute.MultiWorkerMirroredStrategy()
batch = 64 * strategy.num_replicas_in_sync
x = tf.random.stateless_normal((8192, 64), seed=(1, 2))
data = tf.data.Dataset.from_tensor_slices((x, tf.reduce_sum(x, axis=1, keepdims=True))).shuffle(8192).repeat().batch(batch)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(256, activation="relu"), tf.keras.layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse")
model.fit(data, epochs=5, steps_per_epoch=8192 // batch, verbose=2 if rank == 0 else 0)
if rank == 0:
    print(f"trained on {strategy.num_replicas_in_sync} replicas")
