// Examples for the help of every command. tests/cli/documents_test.cc runs them all.
#include <map>

#include "cli/program.h"

namespace some::cli {

const std::vector<Example>& examples_of(const std::string& path) {
  static const std::map<std::string, std::vector<Example>> examples = {
      {"train",
       {{"train tiny", "a recipe by its name, into runs/tiny"},
        {"train default some.top_k=4 --out runs/top4", "any key of a recipe can be changed"},
        {"train default data.train=mine.txt --out runs/mine", "your own text: a file or a folder"},
        {"train --resume runs/mine", "go on after Ctrl-C, exactly where it stopped"},
        {"train --resume runs/mine train.epochs=4", "finished: make it longer"},
        {"train --from runs/tiny data.train=mine.txt --out runs/on", "a new run from its weights, on other text"},
        {"train continual", "several texts in turn, one after the other ([[stage]])"}}},
      {"eval",
       {{"eval runs/tiny", "loss on the run's own validation text"},
        {"eval runs/tiny --data mine.txt data.unit=paragraph", "on other text, read by paragraphs"}}},
      {"generate",
       {{"generate runs/tiny --prompt \"Once upon a time\"", ""},
        {"generate runs/tiny --prompt \"The fox\" --samples 3 --temperature 0.7", ""},
        {"generate runs/tiny < prompts.txt", "one prompt a line"}}},
      {"chat", {{"chat runs/tiny", "/help inside tells what can be set"}, {"chat runs/tiny < prompts.txt", ""}}},
      {"inspect", {{"inspect runs/tiny", "a table, and pictures in runs/tiny/inspect"}}},
      {"trace",
       {{"trace runs/tiny --text \"Lily likes cats.\"", ""},
        {"trace runs/tiny --prompt \"Once upon\" --html trace.html", "a page to click through"}}},
      {"guilds", {{"guilds runs/tiny --layer 1", ""}}},
      {"adapt",
       {{"adapt runs/tiny --data builtin:recipes", "beside a twin whose keys stay"},
        {"adapt runs/tiny --data mine.txt --rules alpha --out runs/adapted", "keep the adapted model"},
        {"adapt runs/tiny --data mine.txt --compare", "every way of learning in use, in one table"}}},
      {"read",
       {{"read runs/tiny builtin:recipes", "into runs/tiny/memory.safetensors, beside the frozen model"},
        {"read runs/tiny mine.txt --memory mine.memory --slots 1024 --html read.html", "a memory of its own"}}},
      {"memory show", {{"memory show runs/tiny/memory.safetensors", "what it knows, and where it was read"}}},
      {"memory forget",
       {{"memory forget runs/tiny/memory.safetensors builtin:recipes --out less.memory", "as if never read"}}},
      {"memory merge", {{"memory merge mine.memory runs/tiny/memory.safetensors --out both.memory", ""}}},
      {"memory prune", {{"memory prune mine.memory --least 2", ""}}},
      {"export",
       {{"export runs/tiny -o tiny-hf", "plain PyTorch and Hugging Face's libraries load it"},
        {"export runs/tiny -o tiny-seed --experts seed --control runs/top4", "small; the card shows both runs"}}},
      {"import", {{"import tiny-hf --out runs/back", "also after it was trained further"}}},
      {"library import",
       {{"train tiny model.ffn=dense --out runs/dense", "a dense run, whose blocks become experts"},
        {"library import runs/dense --d-ffn 16 -o libraries", ""}}},
      {"info",
       {{"info a4", "parameters, steps and memory before anything runs"},
        {"info default data.train=mine.txt", "what your text amounts to"},
        {"info runs/tiny", ""}}},
      {"verify", {{"verify tests/reference/fixtures --precision f64", "see docs/verify.md"}}},
      {"bench train", {{"bench train tiny --steps 5", ""}}},
      {"tokenizer train", {{"tokenizer train --vocab 1024 mine.txt -o tokenizer.json", ""}}},
      {"tokenizer encode",
       {{"tokenizer encode --tokenizer runs/tiny \"Once upon a time\"", "a run folder stands for its tokenizer"}}},
      {"tokenizer decode", {{"tokenizer decode --tokenizer runs/tiny 80 81 82", ""}}},
      {"data stories", {{"data stories --count 100 --domain nature -o nature.txt", ""}}},
      {"lab list", {{"lab list", ""}}},
      {"lab run",
       {{"lab run series-a --scale 0.02 --builtin", "a published series, shrunk to a laptop and built-in text"},
        {"lab run a4 --seeds 3 --data train.txt --valid valid.txt", ""}}},
      {"lab report", {{"lab report series-a -o report.html", ""}}},
      {"keys",
       {{"keys top_k", ""}, {"keys 'data.*'", "all keys of one table"}, {"keys --recipe tiny", "with its values"}}},
      {"runs", {{"runs", "those in ./runs"}, {"runs lab", ""}}},
      {"compare", {{"compare runs/tiny runs/top4", ""}}},
      {"help", {{"help train", ""}, {"help lab run", ""}}},
      {"completion",
       {{"completion bash > ~/.local/share/bash-completion/completions/some", ""},
        {"completion fish > ~/.config/fish/completions/some.fish", ""}}},
      {"manual", {{"manual > some.1", "then: man ./some.1"}}},
  };
  static const std::vector<Example> none;
  const auto found = examples.find(path);
  return found == examples.end() ? none : found->second;
}

}  // namespace some::cli
