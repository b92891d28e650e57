"""`import some`, as its users use it. Run with PYTHONPATH=build/python; exit code 77 where NumPy is missing."""

import contextlib
import inspect
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import unittest

try:
    import numpy as np
except ImportError:
    print("skipped: this Python has no NumPy (Debian's python3-numpy)")
    sys.exit(77)

import some

SHORT = {"train": {"max_steps": 4, "warmup_steps": 1, "eval_every": 0, "device": "cpu"},
         "data": {"vocab": 320, "train_documents": 60, "valid_documents": 10}, "some": {"decay_warmup": 1}}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class PackageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="some-python-")
        os.chdir(cls.folder)
        cls.told = []
        cls.result = some.train("tiny", "runs/one", SHORT, on_step=cls.told.append)
        cls.run_ = some.open("runs/one", threads=1)

    @contextlib.contextmanager
    def refused(self, code, *values):
        with self.assertRaises(some.InputError) as caught:
            yield
        self.assertEqual(caught.exception.code, code, caught.exception)
        for value in values:
            self.assertIn(value, caught.exception.values)

    @classmethod
    def tearDownClass(cls):
        os.chdir("/")
        shutil.rmtree(cls.folder)

    def test_training_tells_every_step_and_its_end(self):
        self.assertEqual([one["step"] for one in self.told], [1, 2, 3, 4])
        self.assertTrue(self.result["finished"])
        lines = [json.loads(line) for line in read("runs/one/metrics.jsonl").splitlines()]
        self.assertAlmostEqual(self.result["loss"], [one for one in lines if one["kind"] == "eval"][-1]["loss"], places=12)

    def test_a_run_tells_what_it_is(self):
        run = self.run_
        self.assertEqual((run.step, run.layers, run.folder), (4, 2, "runs/one"))
        self.assertEqual(run.recipe["model"]["d_model"], 32)
        self.assertIn("runs/one at step 4", repr(run))
        ids = run.encode("Once upon a time")
        self.assertEqual(run.decode(ids), "Once upon a time")
        self.assertEqual([one["name"] for one in some.runs("runs")][:1], ["one"])

    def test_logits_are_what_generation_uses(self):
        ids = self.run_.encode("Once upon a time there was")
        logits = self.run_.logits(ids)
        self.assertEqual((logits.shape, logits.dtype), ((len(ids), self.run_.vocabulary), np.dtype("float32")))
        both = self.run_.logits([ids, ids[:2]])
        np.testing.assert_allclose(both[0], logits, atol=1e-5)
        np.testing.assert_allclose(both[1], logits[:2], atol=1e-5)
        out = self.run_.generate("Once upon a time there was", temperature=0, max_tokens=1, stop_at_end=False)
        ranked = [i for i in np.argsort(-logits[-1], kind="stable") if i not in (1, self.run_.end_of_text)]
        self.assertEqual(out["tokens"], [ranked[0]])
        np.testing.assert_array_equal(self.run_.logits(np.array(ids)), logits)

    def test_generation_is_repeatable_and_streams(self):
        seen = []
        first = self.run_.generate(["The fox", "Once"], seed=3, max_tokens=12, on_token=seen.append)
        again = self.run_.generate(["The fox", "Once"], seed=3, max_tokens=12)
        self.assertEqual(first, again)
        self.assertEqual([one["token"] for one in seen if one["prompt"] == 0], first[0]["tokens"])

    def test_keys_and_experts_are_arrays_of_their_own(self):
        keys = self.run_.keys(1)
        np.testing.assert_allclose(np.linalg.norm(keys, axis=1), 1, atol=0.01)  # unit keys, less what faded
        keys[:] = 0  # a copy: the model does not change
        self.assertGreater(abs(self.run_.keys(1)).max(), 0)
        w1, w2 = self.run_.experts(0)
        self.assertEqual((w1.shape, w2.shape), ((8, 48, 32), (8, 32, 48)))
        self.assertEqual(self.run_.usage(0).shape, (8,))
        tensors = self.run_.tensors()
        np.testing.assert_array_equal(tensors["layers.1.keys"], self.run_.keys(1))

    def test_hadamard_experts_are_written_out(self):
        some.train("tiny", "runs/transforms", {**SHORT, "some": {"decay_warmup": 1, "init": "hadamard"}})
        w1, w2 = some.open("runs/transforms", threads=1).experts(0)
        self.assertEqual((w1.shape, w2.shape), ((8, 48, 32), (8, 32, 48)))
        np.testing.assert_allclose(np.abs(w1), 1 / np.sqrt(3 * 32), rtol=1e-6)
        np.testing.assert_allclose(w1[0, :32] @ w1[0, :32].T, np.eye(32) / 3, atol=1e-6)

    def test_ten_lines_of_numpy(self):
        # Computes the probability of the correct next tokens of a text by hand.
        run = some.open("runs/one", threads=1)
        ids = run.encode("Once upon a time there was a fox.")
        logits = run.logits(ids).astype(np.float64)
        logp = logits - np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1, keepdims=True)) - logits.max(1, keepdims=True)
        nll = -logp[np.arange(len(ids) - 1), ids[1:]]
        trace = run.trace("Once upon a time there was a fox.")
        told = [token["loss"] for token in trace["tokens"][1:]]
        np.testing.assert_allclose(nll, told, atol=1e-4)

    def test_measures_and_evaluation(self):
        evaluated = self.run_.evaluate(max_documents=5)
        self.assertGreater(evaluated["loss"], 0)
        self.assertEqual(len(evaluated["layers"]), 2)
        self.assertEqual(len(self.run_.measures(max_documents=5)["layers"]), 2)

    def test_reading_into_a_memory(self):
        report = self.run_.read(["builtin:recipes"], memory="one.memory", settings={"slots": 64}, tokens=300,
                                original_tokens=0)
        self.assertEqual(report["texts"][0]["tokens"], 299)
        self.assertIn("text", self.run_.generate("Mix the flour", memory="one.memory", max_tokens=4))
        with self.refused("setting-unknown", "colour"):
            self.run_.read(["builtin:recipes"], settings={"colour": 1})

    def test_the_memory_that_a_recipe_asks_for_is_built(self):
        asked = dict(SHORT, memory={"slots": 64})
        self.assertNotIn("memory", self.result)
        result = some.train("tiny", "runs/remembers", asked)
        self.assertEqual((result["memory"]["slots"], result["memory"]["stopped"]), (64, False))
        self.assertIn("text", some.open("runs/remembers").generate("Once", memory=result["memory"]["file"], max_tokens=4))

    def test_step_by_step_is_the_same_run(self):
        with some.Trainer("tiny", "runs/steps", SHORT) as trainer:
            before = trainer.keys(0)
            while trainer.steps < trainer.total_steps:
                trainer.step()
                trainer.run_scheduled()
            self.assertGreater(abs(trainer.keys(0) - before).max(), 0)
            self.assertEqual(trainer.recipe["train"]["max_steps"], 4)
            trainer.save()
        for name, tensor in some.open("runs/steps").tensors().items():
            np.testing.assert_array_equal(tensor, self.run_.tensors()[name], err_msg=name)
        with self.refused("run-finished"):
            trainer.step()

    def test_from_another_run_and_from_a_dict(self):
        resolved = some.recipe("tiny", SHORT)
        resolved["train"]["max_steps"] = 2
        self.assertEqual(some.train(resolved, "runs/dict")["steps"], 2)
        result = some.train(None, "runs/from", {"train": {"max_steps": 1}}, from_run="runs/one")
        self.assertEqual(result["steps"], 1)

    def test_a_callback_that_raises_stops_the_run_which_can_go_on(self):
        def angry(told):
            if told["step"] == 2:
                raise KeyError("enough")

        with self.assertRaisesRegex(KeyError, "enough"):
            some.train("tiny", "runs/stopped", SHORT, on_step=angry)
        with some.Trainer.resume("runs/stopped") as trainer:
            self.assertGreaterEqual(trainer.steps, 2)
            trainer.run()
        for name, tensor in some.open("runs/stopped").tensors().items():
            np.testing.assert_array_equal(tensor, self.run_.tensors()[name], err_msg=name)

    def test_control_c_stops_training_and_others_go_on_meanwhile(self):
        long = {**SHORT, "train": {**SHORT["train"], "max_steps": 100000, "epochs": 100000, "schedule": "constant"}}
        counted = []

        def others():  # another thread of Python works while the library does
            steps = "runs/interrupted/metrics.jsonl"
            while len(counted) < 20 or not (os.path.exists(steps) and os.path.getsize(steps) > 0):
                counted.append(time.sleep(0.01))
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=others)
        thread.start()
        with self.assertRaises(KeyboardInterrupt):
            some.train("tiny", "runs/interrupted", long)
        thread.join()
        self.assertGreaterEqual(len(counted), 20)
        with some.Trainer.resume("runs/interrupted") as trainer:
            self.assertGreater(trainer.steps, 0)

    def test_control_c_stops_writing(self):
        thread = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        with self.assertRaises(KeyboardInterrupt):
            thread.start()
            self.run_.generate("Once", max_tokens=10**7, stop_at_end=False)
        thread.join()

    def test_one_run_asked_by_several_threads(self):
        ids = self.run_.encode("Once upon a time there was")
        wanted, found = self.run_.logits(ids), []
        threads = [threading.Thread(target=lambda: found.append(self.run_.logits(ids))) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for one in found:
            np.testing.assert_array_equal(one, wanted)

    def test_errors_have_the_words_of_the_program(self):
        cases = [(lambda: some.open("nowhere"), "run-not-found", "nowhere"),
                 (lambda: some.open("runs/one", checkpoint="77"), "checkpoint-not-found", "runs/one", "77"),
                 (lambda: some.train("tiny", "runs/x", {"some": {"top_kk": 2}}), "setting-unknown", "some.top_k"),
                 (lambda: some.train("tiny", "runs/x", {"some": {"top_k": "two"}}), "setting-type", "some.top_k"),
                 (lambda: some.train("tiny", "runs/x", {"some": {"top_k": object()}}), "setting-type"),
                 (lambda: some.train("tiny", "runs/one", SHORT), "run-exists", "runs/one"),
                 (lambda: some.train("nosuch", "runs/x"), "recipe-not-found", "nosuch"),
                 (lambda: self.run_.generate("One", temperature=-1), "option-invalid", "--temperature"),
                 (lambda: self.run_.generate(""), "prompt-empty"),
                 (lambda: self.run_.logits([[]]), "prompt-empty"),
                 (lambda: self.run_.logits([1] * 1000), "text-too-long", "1000"),
                 (lambda: self.run_.keys(5), "layer-out-of-range", "5"),
                 (lambda: self.run_.trace(""), "prompt-empty"),
                 (lambda: some.import_hf("runs/one", "runs/y"), "import-invalid", "runs/one"),
                 (lambda: some.export_hf("runs/one", "out", experts="none"), "option-invalid", "experts", "none")]
        for call, code, *values in cases:
            with self.refused(code, *values):
                call()
        self.assertEqual(self.run_.logits([]), [])
        with self.assertRaises((some.Error, OverflowError, TypeError)):
            self.run_.logits([10**6])
        self.assertTrue(issubclass(some.InputError, ValueError) and issubclass(some.InputError, some.Error))
        self.assertFalse(os.path.exists("runs/x"))

    def test_messages_go_to_logging(self):
        shutil.copytree("runs/one", "runs/changed")
        text = read("runs/changed/config.toml")
        with open("runs/changed/config.toml", "w", encoding="utf-8") as file:
            file.write(text.replace("max_steps = 4", "max_steps = 5").replace("measure_every = 5", "measure_every = 1"))
        with self.assertLogs("some", logging.WARNING) as logs:
            some.Trainer.resume("runs/changed").close()
        self.assertIn("was changed since step 4", "".join(logs.output))

    def test_export_and_back(self):
        some.export_hf("runs/one", "exported", experts="seed")
        some.import_hf("exported", "runs/back")
        for name, tensor in some.open("runs/back").tensors().items():
            np.testing.assert_array_equal(tensor, self.run_.tensors()[name], err_msg=name)

    def test_a_lab_is_iterated(self):
        done = list(some.Lab("tiny", runs="lab", builtin=True, max_steps=2, settings={"data": {"vocab": 320}}))
        self.assertEqual([(one["name"], one["outcome"]) for one in done], [("tiny", "done")])
        again = list(some.Lab("tiny", runs="lab", builtin=True, max_steps=2, settings={"data": {"vocab": 320}}))
        self.assertEqual(again[0]["outcome"], "already done")

    def test_everything_has_words_and_a_stub(self):
        stub = read(os.path.join(os.path.dirname(some.__file__), "__init__.pyi"))
        for name in some.__all__:
            thing = getattr(some, name)
            if name != "version":
                self.assertTrue((thing.__doc__ or "").strip(), name)
            self.assertRegex(stub, rf"(?m)^((def|class) {name}\b|{name}(:| =))")
            if inspect.isclass(thing) and name in ("Run", "Trainer", "Lab"):
                for method, value in vars(thing).items():
                    if not method.startswith("_"):
                        self.assertTrue(value.__doc__, f"{name}.{method}")
                        self.assertIn(f"def {method}(", stub)


if __name__ == "__main__":
    unittest.main(verbosity=1)
