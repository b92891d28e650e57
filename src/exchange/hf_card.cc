// The model card: description, results compared with controls, and usage.
#include <filesystem>

#include "analysis/pages/run_header.h"
#include "exchange/hf.h"
#include "plot/document.h"
#include "recipe/schema.h"

namespace some {
namespace {

// Escapes text from users and files, so that it is not interpreted as Markdown or YAML.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n' || c == '\r')
      out += ' ';
    else if (c == '|' || c == '<' || c == '*' || c == '`' || c == '[' || c == '_' || c == '\\')
      out += fmt::format("\\{}", c);
    else
      out += c;
  }
  return out;
}

std::string millions(std::int64_t count) { return fmt::format("{:.2f} M", static_cast<double>(count) / 1e6); }

// Returns the last component of a text's path; its location on this machine is private.
std::string text_name(const std::string& source) {
  if (source.starts_with("builtin:")) return "built-in texts (" + source.substr(8) + ")";
  const std::filesystem::path path(source);
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

const EvalPoint* evaluation_at(const RunHistory& history, std::int64_t step) {
  const EvalPoint* found = nullptr;
  for (const EvalPoint& one : history.evaluations) {
    if (one.step == step) found = &one;
  }
  return found;
}

std::string row(const std::string& name, const RunHistory& history, const EvalPoint* point,
                const std::string& differs) {
  const auto number = [&](double value, int digits) {
    return point != nullptr ? fmt::format("{:.{}f}", value, digits) : std::string("-");
  };
  return fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", name,
                     point != nullptr ? std::to_string(point->step) : "-", number(point ? point->loss : 0, 4),
                     number(point ? point->perplexity : 0, 2), number(point ? point->bits_per_byte : 0, 4),
                     millions(history.parameters.trainable), differs);
}

std::string differences(const Recipe& control, const Recipe& own) {
  std::string out;
  int count = 0;
  for (const std::string& one : recipe_differences(control, own)) {
    if (is_left_out_of_comparisons(one) || ++count > 8) continue;
    out += (out.empty() ? "" : ", ") + plain(one);
  }
  if (count > 8) out += fmt::format(" and {} more", count - 8);
  return out.empty() ? "nothing" : out;
}

}  // namespace

std::string model_card(const OpenedRun& run, const RunHistory& history, const std::vector<RunHistory>& controls,
                       const ExportOptions& options) {
  const ModelConfig& model = run.recipe.model;
  const std::string name = run_name(run);
  const EvalPoint* point = evaluation_at(history, run.step);
  std::string text =
      "---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags:\n- some\n"
      "- mixture-of-experts\n---\n\n";
  text += fmt::format("# {}\n\n", plain(name));
  if (!run.recipe.title.empty()) text += plain(run.recipe.title) + "\n\n";
  text += fmt::format("A SoME language model: {}; {} parameters, {} of them trained. ", model_sizes(model),
                      millions(history.parameters.total), millions(history.parameters.trainable));
  if (model.ffn == Ffn::some && model.use_library) {
    text += model.training == ExpertTraining::frozen
                ? "Its experts are random and were never trained; "
                : fmt::format("Its experts were initialized at random and then trained ({}); ",
                              model.training == ExpertTraining::lora ? "a low-rank correction" : "entirely");
    text += model.has_transforms()      ? "they are Hadamard transforms with random signs and have no stored weights."
            : options.experts_from_seed ? "the Python files regenerate them from their seed, bit-identical."
                                        : "they are stored with the weights.";
  }
  text += fmt::format("\n\nTrained on {} up to step {}.\n\n", plain(text_name(run.recipe.data.train)), run.step);

  text +=
      "## Numbers\n\nLoss in nats/token over the non-padding tokens of the run's validation text.\n\n| run | step | "
      "loss | "
      "perplexity | bits per byte | trained parameters | what differs |\n| --- | --- | --- | --- | --- | --- | --- |\n";
  text += row("**" + plain(name) + "**", history, point, "");
  for (const RunHistory& control : controls)
    text += row(plain(control.found.name), control, control.last(), differences(control.recipe, history.recipe));
  if (point == nullptr) text += "\nThis step was not evaluated; `some eval` computes its loss.\n";
  if (controls.empty())
    text +=
        "\nNo control run is listed (`some export --control RUN`), so these numbers do not show the effect of the "
        "experts.\n";

  text +=
      "\n## Use\n\nWithout transformers (NumPy and PyTorch are enough), in this folder:\n\n```python\n"
      "import modeling_some, torch\n\nmodel = modeling_some.load(\".\")\n"
      "logits = model(torch.tensor([[5, 6, 7]]))    # [batch, positions, vocabulary]\n"
      "ids = model.write([5, 6, 7], 100, temperature=0.8, seed=1)\n```\n\n"
      "With transformers:\n\n```python\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
      "model = AutoModelForCausalLM.from_pretrained(\".\", trust_remote_code=True)\n"
      "tokenizer = AutoTokenizer.from_pretrained(\".\")\n"
      "inputs = tokenizer(\"Once upon a time\", return_tensors=\"pt\")\n"
      "print(tokenizer.decode(model.generate(**inputs, return_dict_in_generate=False)[0]))\n```\n\n"
      "To use the model in the program again, also after further training: `some import FOLDER --out RUN`. Keys are "
      "buffers: they learn only in the program.\n\n## Settings\n\nEvery setting of the run is in `config.json` "
      "under `recipe`, named as in the program's recipes.\n";
  return text;
}

}  // namespace some
