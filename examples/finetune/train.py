"""Fine-tunes a language model. It goes on from the last checkpoint that is whole."""

import glob
import os

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling, Trainer, TrainingArguments

FOLDER = os.path.expanduser("~/checkpoints/run")
PARTS = ("model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json")


def last_whole():
    """The newest checkpoint of which all files have arrived in the bucket."""
    found = [(int(d.rsplit("-", 1)[1]), d) for d in glob.glob(os.path.join(FOLDER, "checkpoint-*"))]
    for _, d in sorted(found, reverse=True):
        if all(os.path.exists(os.path.join(d, part)) for part in PARTS):
            return d
    return None


def main():
    name = os.environ["MODEL"]
    tokenizer = AutoTokenizer.from_pretrained(name)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    text = load_dataset("Salesforce/wikitext", "wikitext-2-raw-v1", split="train").filter(lambda row: len(row["text"]) > 200)
    tokens = text.map(lambda rows: tokenizer(rows["text"], truncation=True, max_length=512), batched=True, remove_columns=["text"])
    trainer = Trainer(
        model=AutoModelForCausalLM.from_pretrained(name),
        args=TrainingArguments(
            output_dir=FOLDER, num_train_epochs=1, per_device_train_batch_size=8, gradient_accumulation_steps=2, learning_rate=2e-5,
            bf16=True, save_steps=100, save_total_limit=3, logging_steps=10, report_to=[],
        ),
        train_dataset=tokens,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    )
    begin = last_whole()
    print("from the checkpoint", begin) if begin else print("from the beginning")
    trainer.train(resume_from_checkpoint=begin)
    trainer.save_model(os.path.join(FOLDER, "final"))


if __name__ == "__main__":
    main()
