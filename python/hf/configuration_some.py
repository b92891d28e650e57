"""The configuration of an exported SoME model: config.json.

`recipe` holds every setting of the run, by table and name as in its config.toml; the model reads only recipe["model"] and
recipe["some"]. Works without transformers; with it, SomeConfig is an ordinary PretrainedConfig.
"""

import json
import os

try:
    from transformers import PretrainedConfig
except ImportError:

    class PretrainedConfig:
        """Minimal replacement of the base class, used without transformers."""

        def __init__(self, **settings):
            for name, value in settings.items():
                setattr(self, name, value)

        @classmethod
        def from_pretrained(cls, folder):
            with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
                settings = json.load(file)
            kind = settings.pop("model_type", None)
            if kind != cls.model_type:
                raise ValueError(f"{folder}/config.json: model_type is {kind!r}, must be {cls.model_type!r}")
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
        """library: {"stored": True if the weights include the experts' matrices, "hashes": one per layer, of the generated
        float32 numbers}; key_steps: number of key updates per layer; step: that of the checkpoint."""
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
