"""Makes an image of each prompt, in the folder ~/images."""

import os
import sys

import torch
from diffusers import AutoPipelineForText2Image

folder = os.path.expanduser("~/images")
os.makedirs(folder, exist_ok=True)
pipe = AutoPipelineForText2Image.from_pretrained(os.environ["MODEL"], torch_dtype=torch.float16, variant="fp16").to("cuda")
for n, prompt in enumerate(sys.argv[1:]):
    image = pipe(prompt=prompt, num_inference_steps=2, guidance_scale=0.0, generator=torch.Generator("cuda").manual_seed(n)).images[0]
    image.save(os.path.join(folder, f"{n}.png"))
    print(f"~/images/{n}.png: {prompt}", flush=True)
