// storyteller RECIPE FOLDER: trains a run for a few steps (or resumes it), and generates text with it.
#include <some/some.h>

#include <cmath>
#include <exception>
#include <iostream>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: storyteller RECIPE FOLDER\n";
    return 2;
  }
  try {
    some::TrainingOptions training;
    training.on_step = [](const some::TrainingStep& at) {
      std::cout << "step " << at.step << " of " << at.total_steps << ": " << at.loss << "\n";
      return at.step != 2;  // stopped once on the way, for showing that it can be
    };
    some::TrainedRun trained =
        some::train_run(argv[1], argv[2], {"train.max_steps=4", "train.warmup_steps=1"}, training);
    std::cout << (trained.finished ? "finished" : "stopped") << " after " << trained.steps << " steps\n";
    if (!trained.finished) trained = some::resume_run(argv[2]);

    some::Run run(argv[2]);
    const some::MeasuredLoss measured = run.evaluate("", 5);
    std::cout << "loss " << measured.loss << " over " << measured.tokens << " tokens\n";
    const std::vector<float> logits = run.logits(run.encode("Once upon a time"));
    if (logits.empty() || !std::isfinite(logits.back())) return 1;
    some::WriteOptions writing;
    writing.max_tokens = 20;
    writing.seed = 7;
    std::cout << run.generate("Once upon a time", writing).text << "\n";
  } catch (const some::Failure& failure) {
    std::cerr << "storyteller: " << failure.what() << "\n";
    return failure.input() ? 2 : 1;
  }
}
