"""A stand-in for the few classes of transformers that an exported model builds on, for tests where that package is not to be
had. It follows what transformers does with a model (construction, forward by keywords, the loop of greedy search with a cache)
and nothing more; that the real package accepts the files is not shown by it."""

import json
import os

import torch
from torch import nn


class PretrainedConfig:
    model_type = ""

    def __init__(self, pad_token_id=None, eos_token_id=None, bos_token_id=None, tie_word_embeddings=True, torch_dtype=None,
                 architectures=None, auto_map=None, **others):
        self.pad_token_id, self.eos_token_id, self.bos_token_id = pad_token_id, eos_token_id, bos_token_id
        self.tie_word_embeddings, self.torch_dtype = tie_word_embeddings, torch_dtype
        self.architectures, self.auto_map = architectures, auto_map
        for name, value in others.items():
            setattr(self, name, value)

    @classmethod
    def from_pretrained(cls, folder):
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            settings = json.load(file)
        settings.pop("model_type")
        return cls(**settings)

    def to_dict(self):
        return {"model_type": self.model_type, **self.__dict__}

    def save_pretrained(self, folder):
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(self.to_dict(), file)


class PreTrainedModel(nn.Module):
    def __init__(self, config, *inputs, **others):
        super().__init__()
        self.config = config

    def post_init(self):
        self.apply(self._init_weights)


class GenerationMixin:
    @torch.no_grad()
    def generate(self, input_ids, attention_mask, max_new_tokens):
        settings = {"attention_mask": attention_mask, "past_key_values": object(), "use_cache": True}
        for _ in range(max_new_tokens):
            outputs = self(**self.prepare_inputs_for_generation(input_ids, **settings), return_dict=True)
            token = outputs.logits[:, -1].argmax(dim=-1)
            input_ids = torch.cat([input_ids, token[:, None]], dim=-1)
            settings["past_key_values"] = outputs.past_key_values
            mask = settings["attention_mask"]
            settings["attention_mask"] = torch.cat([mask, mask.new_ones(mask.shape[0], 1)], dim=-1)
        return input_ids
