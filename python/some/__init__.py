"""SoME from Python: open runs, ask them, train.

    import some
    run = some.open("runs/tiny")
    run.generate("Once upon a time")["text"]
    run.logits(run.encode("Once upon"))     # NumPy
    some.train("tiny", "runs/mine", {"some": {"top_k": 4}}, on_step=print)

Errors are some.Error, those that the caller can set right some.InputError (a ValueError); both say what the program would say,
and have its code and values (docs/errors.md): error.code == "file-not-found", error.values == ["mine.txt", ...].
Long calls give the interpreter's lock back, and Ctrl-C stops them: training finishes its step and saves first. Messages of the
library go to logging.getLogger("some").
"""

import os as _os

from ._some import Error, InputError, Run, _Lab, _recipe, _Trainer, export_hf, import_hf, open, runs, version

__all__ = ["Error", "InputError", "Lab", "Run", "Trainer", "export_hf", "find_recipe", "import_hf", "open", "recipe", "runs",
           "train", "version"]

_RECIPES = _os.path.join(_os.path.dirname(_os.path.abspath(__file__)), "recipes")


def _input_error(code, message, *values):
    error = InputError(message)
    error.code, error.values = code, list(values)
    return error


def find_recipe(name):
    """The file that a recipe's name ("tiny") or path stands for: here, in ./recipes, or of those that come with the package."""
    name = _os.fspath(name)
    for path in (name, name + ".toml"):
        if _os.path.isfile(path):
            return path
    if _os.sep not in name:
        file = name if name.endswith(".toml") else name + ".toml"
        for folder in ("recipes", _RECIPES):
            if _os.path.isfile(_os.path.join(folder, file)):
                return _os.path.join(folder, file)
    raise _input_error("recipe-not-found", f"there is no recipe {name} here, in ./recipes or in {_RECIPES}", name)


def _base_and_settings(recipe, settings):
    """A recipe is a name, a path, or a dict of tables; settings (a dict of tables) come on top of it."""
    if isinstance(recipe, dict):
        merged = {name: dict(value) if isinstance(value, dict) else value for name, value in recipe.items()}
        for name, value in (settings or {}).items():
            if isinstance(value, dict) and isinstance(merged.get(name), dict):
                merged[name].update(value)
            else:
                merged[name] = value
        return "", merged
    return (find_recipe(recipe) if recipe is not None else ""), dict(settings or {})


def recipe(recipe="default", settings=None):
    """A resolved recipe as a dict: every setting by table and name. Change it and hand it to train or Trainer."""
    base, tables = _base_and_settings(recipe, settings)
    return _recipe(tables, base)


class Trainer:
    """A run in training, which holds its folder for itself until it is closed (also by `with`).

    run() does everything that the recipe says. A caller with a mind of its own takes its parts: step() as often as wanted,
    evaluate() and save() when wanted, or run_scheduled() after each step for what the recipe wants then. However they are
    called, a run that is stopped and resumed computes what one without a stop computes, to the bit.

    recipe: a name, a path or a dict of tables; settings: a dict of tables on top of it. from_run: begin with the weights and
    keys of another run (recipe None: with its settings, too). on_step and on_evaluation are called with dicts; what they
    raise stops the run, which saves first."""

    def __init__(self, recipe, out, settings=None, from_run=None, checkpoint="latest", on_step=None, on_evaluation=None):
        if recipe is None and from_run is None:
            raise _input_error("argument-missing", "a trainer needs a recipe, or a run to begin from (from_run)", "recipe")
        base, tables = _base_and_settings(recipe, settings)
        if isinstance(recipe, dict) and from_run is not None:
            raise _input_error("option-conflict", "with from_run, give changes as settings and None or a recipe's name as the recipe",
                               "from_run")
        self.folder = _os.fspath(out)
        source = None if from_run is None else _os.fspath(from_run)
        self._native = _Trainer(tables, base, self.folder, source, str(checkpoint), on_step, on_evaluation)

    @classmethod
    def resume(cls, folder, settings=None, from_step=None, on_step=None, on_evaluation=None):
        """Goes on from the last checkpoint (or from_step). settings, "train.epochs=4" each, may make the run longer."""
        trainer = cls.__new__(cls)
        trainer.folder = _os.fspath(folder)
        trainer._native = _Trainer(trainer.folder, list(settings or []), from_step, on_step, on_evaluation)
        return trainer

    finished = property(lambda self: self._native.finished, doc="Whether the run came to its end.")
    steps = property(lambda self: self._native.steps, doc="Steps made so far.")
    total_steps = property(lambda self: self._native.total_steps, doc="Steps that the recipe gives.")
    loss = property(lambda self: self._native.loss, doc="Of the last step.")
    gradient_norm = property(lambda self: self._native.gradient_norm, doc="Of the last step.")
    recipe = property(lambda self: self._native.recipe, doc="Every setting, by table and name.")

    def step(self, count=1):
        """Makes steps, no more than the recipe gives; returns the loss of the last one."""
        return self._native.step(count)

    def run_scheduled(self):
        """What the recipe wants after the step just made: an evaluation, the end of an epoch, a checkpoint."""
        self._native.run_scheduled()

    def evaluate(self):
        """On the validation text, and into metrics.jsonl."""
        return self._native.evaluate()

    def save(self):
        """Writes a checkpoint."""
        self._native.save()

    def run(self):
        """To the end. Ctrl-C finishes the step, saves and raises KeyboardInterrupt; resume goes on from there."""
        return self._native.run()

    def keys(self, layer):
        """The keys of a layer as they are now: a NumPy array [experts, query size]."""
        return self._native.keys(layer)

    def close(self):
        """Lets go of the run folder. What was not saved is lost."""
        self._native.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def train(recipe, out, settings=None, from_run=None, on_step=None, on_evaluation=None):
    """Trains a run from its beginning to its end: {steps, finished, stopped_early, loss, ...}."""
    with Trainer(recipe, out, settings, from_run, on_step=on_step, on_evaluation=on_evaluation) as trainer:
        return trainer.run()


class Lab:
    """Series of runs, done one after another as they are iterated over; what is finished is skipped.

        for done in some.Lab(["series-a"], scale=0.02, builtin=True):
            print(done["name"], done.get("loss"))
    """

    def __init__(self, names, runs="lab", seeds=1, scale=1.0, builtin=False, max_steps=None, settings=None, on_step=None,
                 index=None):
        index = index or next((path for path in ("recipes/index.toml", _os.path.join(_RECIPES, "index.toml"))
                               if _os.path.isfile(path)), "recipes/index.toml")
        names = [names] if isinstance(names, str) else list(names)
        self._native = _Lab(_os.fspath(index), names, _os.fspath(runs), seeds, scale, builtin, max_steps, settings or {},
                            on_step)

    def __len__(self):
        return len(self._native)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._native)
