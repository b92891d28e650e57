"""The configuration of an exported SoME model: config.json.

`recipe` holds every setting of the run, by table and name as in its config.toml; the mathematics reads recipe["model"] and
recipe["some"] and nothing else. Works without transformers; with it, SomeConfig is an ordinary PretrainedConfig.
"""

import json
import os

try:
    from transformers import PretrainedConfig
except ImportError:

    class PretrainedConfig:
        """As much of transformers' class as this file needs where that is not installed."""

        def __init__(self, **settings):
            for name, value in settings.items():
                setattr(self, name, value)

        @classmethod
        def from_pretrained(cls, folder):
            with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
                settings = json.load(file)
            kind = settings.pop("model_type", None)
            if kind != cls.model_type:
                raise ValueError(f"{folder}/config.json: model_type is {kind!r}, wants {cls.model_type!r}")
            return cls(**settings)

        def to_dict(self):
            return {"model_type": self.model_type, **self.__dict__}

        def save_pretrained(self, folder):
            with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
                json.dump(self.to_dict(), file, indent=1, sort_keys=True)
                file.write("\n")


class SomeConfig(PretrainedConfig):
    model_type = "some"
    keys_to_ignore_at_inference = ["past_key_values"]

    def __init__(self, recipe=None, vocab_size=0, library=None, key_steps=None, step=0, **settings):
        """library: {"stored": whether the experts' matrices are among the weights, "hashes": one a layer, of the float32
        numbers as drawn}; key_steps: how many updates each layer's keys have seen; step: of the checkpoint."""
        self.recipe = recipe or {"model": {}, "some": {}}
        self.vocab_size = vocab_size
        self.library = library or {"stored": True, "hashes": []}
        self.key_steps = key_steps or []
        self.step = step
        super().__init__(**settings)

    def setting(self, name, absent=None):
        """A setting by its full name, "model.d_model"; `absent` for models exported before there was one."""
        table, key = name.split(".")
        try:
            return self.recipe[table][key]
        except KeyError:
            if absent is not None:
                return absent
            raise ValueError(f"config.json: its recipe has no {name}") from None
