// Reads and writes Hugging Face tokenizer.json files. Features that would be computed differently here are rejected by
// name: a tokenizer that silently gives other ids would invalidate everything trained with it.
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/error.h"
#include "core/files/files.h"
#include "core/files/folders.h"
#include "core/files/json.h"
#include "text/tokenizer.h"
#include "text/tokenizer_impl.h"

namespace some {
namespace {

using Json = nlohmann::json;                 // for reading: fast lookup of keys
using OrderedJson = nlohmann::ordered_json;  // for writing: preserves the order of keys

constexpr const char* hugging_face = "tokenizer.json of Hugging Face's library";

std::string shown(const Json& value) { return describe(value); }

std::string shown_token(std::string_view token) { return shown(Json(std::string(token))); }

class Reader {
 public:
  explicit Reader(std::string_view origin) : origin_(origin) {}

  TokenizerParts read(std::string_view text) {
    const Json root = parse_json(text, std::string(origin_));
    if (!root.is_object())
      bad_input(Code::tokenizer_invalid, "{}: expected a {}, found {}", origin_, hugging_face, shown(root));
    only_known(root, "",
               {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
                "decoder", "model"});
    if (root.contains("version") && root["version"] != "1.0") {
      refuse(Code::tokenizer_unsupported, "version", "is {}; must be \"1.0\"", shown(root["version"]));
    }
    for (const char* part : {"truncation", "padding", "normalizer"}) must_be_null(root, part);
    read_pre_tokenizer(root);
    read_post_processor(root);
    read_decoder(root);
    read_model(root);
    read_added_tokens(root);
    return std::move(parts_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void refuse(Code code, std::string_view part, fmt::format_string<Args...> format, Args&&... args) const {
    const Error error = make_error(Fault::input, code, format, std::forward<Args>(args)...);
    throw error.within(part, fmt::format("{} {}", part, error.what()))
        .within(origin_, fmt::format("{}: {} {}", origin_, part, error.what()));
  }

  void only_known(const Json& object, const std::string& where, std::initializer_list<std::string_view> known) const {
    for (const auto& [key, value] : object.items()) {
      bool found = value.is_null();
      for (const std::string_view name : known) found = found || key == name;
      if (!found) refuse(Code::tokenizer_unsupported, where + shown_token(key), "is not supported; remove it");
    }
  }

  void must_be_null(const Json& object, const std::string& part) const {
    if (object.contains(part) && !object[part].is_null()) {
      refuse(Code::tokenizer_unsupported, part, "{}is not supported; it must be null", type_of(object[part]));
    }
  }

  static std::string type_of(const Json& part) {
    if (!part.is_object() || !part.contains("type") || !part["type"].is_string()) return "";
    return fmt::format("of type {} ", shown(part["type"]));
  }

  // Checks that a flag has the only supported value; a missing flag counts as `absent`.
  void flag(const Json& object, const std::string& where, const char* name, bool wanted, bool absent) const {
    bool value = absent;
    if (object.contains(name) && !object[name].is_null()) {
      if (!object[name].is_boolean())
        refuse(Code::tokenizer_invalid, where + name, "is {}; expected true or false", shown(object[name]));
      value = object[name].get<bool>();
    }
    if (value != wanted)
      refuse(Code::tokenizer_unsupported, where + name, "= {} is not supported; it must be {}", value, wanted);
  }

  void read_pre_tokenizer(const Json& root) {
    const Json part = root.value("pre_tokenizer", Json());
    if (!part.is_object() || !part.contains("type")) {
      refuse(Code::tokenizer_invalid, "pre_tokenizer", "is {}; it must be an object of type Whitespace or ByteLevel",
             shown(part));
    }
    if (part["type"] == "Whitespace") {
      only_known(part, "pre_tokenizer.", {"type"});
      parts_.kind = TokenizerKind::whitespace;
    } else if (part["type"] == "ByteLevel") {
      check_byte_level(part, "pre_tokenizer.");
      flag(part, "pre_tokenizer.", "add_prefix_space", false, true);
      flag(part, "pre_tokenizer.", "use_regex", true, true);
      parts_.kind = TokenizerKind::bytelevel;
    } else {
      refuse(Code::tokenizer_unsupported, "pre_tokenizer",
             "of type {} is not supported; it must be Whitespace or ByteLevel", shown(part["type"]));
    }
    parts_.pre_tokenizer = to_keep(part);
  }

  // Copies the fields in the order in which Hugging Face tokenizers writes them.
  static OrderedJson to_keep(const Json& part) {
    if (!part.is_object()) return nullptr;
    OrderedJson kept = OrderedJson::object();
    for (const char* name : {"type", "add_prefix_space", "trim_offsets", "use_regex"}) {
      if (!part.contains(name)) continue;
      if (part[name].is_string()) kept[name] = part[name].get<std::string>();
      if (part[name].is_boolean()) kept[name] = part[name].get<bool>();
    }
    return kept;
  }

  void check_byte_level(const Json& part, const std::string& where) const {
    only_known(part, where, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
    for (const char* name : {"add_prefix_space", "trim_offsets", "use_regex"}) {
      if (part.contains(name) && !part[name].is_boolean() && !part[name].is_null()) {
        refuse(Code::tokenizer_invalid, where + name, "is {}; expected true or false", shown(part[name]));
      }
    }
  }

  // True for ByteLevel and null. A ByteLevel post-processor only trims offsets, and a ByteLevel decoder is the default
  // of the bytelevel kind.
  bool is_byte_level_or_null(const Json& root, const std::string& name) const {
    if (!root.contains(name) || root[name].is_null()) return true;
    const Json& part = root[name];
    if (parts_.kind == TokenizerKind::bytelevel && part.is_object() && part.value("type", Json()) == "ByteLevel") {
      check_byte_level(part, name + ".");
      return true;
    }
    return false;
  }

  void read_post_processor(const Json& root) {
    if (!is_byte_level_or_null(root, "post_processor")) {
      refuse(Code::tokenizer_unsupported, "post_processor", "{}is not supported; it must be null",
             type_of(root["post_processor"]));
    }
    parts_.post_processor = to_keep(root.value("post_processor", Json()));
  }

  void read_decoder(const Json& root) {
    if (!is_byte_level_or_null(root, "decoder")) {
      refuse(Code::tokenizer_unsupported, "decoder", "{}is not supported with this pre_tokenizer; it must be {}",
             type_of(root["decoder"]), parts_.kind == TokenizerKind::bytelevel ? "ByteLevel" : "null");
    }
    parts_.decoder = to_keep(root.value("decoder", Json()));
  }

  void read_model(const Json& root) {
    if (!root.contains("model") || !root["model"].is_object())
      refuse(Code::tokenizer_invalid, "model", "is missing; expected an object");
    const Json& model = root["model"];
    if (model.contains("type") && model["type"] != "BPE") {
      refuse(Code::tokenizer_unsupported, "model", "of type {} is not supported; it must be BPE", shown(model["type"]));
    }
    only_known(model, "model.",
               {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                "byte_fallback", "ignore_merges", "vocab", "merges"});
    const Json dropout = model.value("dropout", Json());
    if (!dropout.is_null() && dropout != 0.0)
      refuse(Code::tokenizer_unsupported, "model.dropout", "= {} is not supported; it must be null", shown(dropout));
    for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const Json value = model.value(name, Json());
      if (!value.is_null() && value != "") {
        refuse(Code::tokenizer_unsupported, std::string("model.") + name, "= {} is not supported; it must be null",
               shown(value));
      }
    }
    for (const char* name : {"fuse_unk", "byte_fallback", "ignore_merges"}) flag(model, "model.", name, false, false);
    read_vocabulary(model);
    read_merges(model);
    const Json unk = model.value("unk_token", Json());
    if (!unk.is_null()) {
      if (!unk.is_string())
        refuse(Code::tokenizer_invalid, "model.unk_token", "is {}; expected a string or null", shown(unk));
      parts_.unk_token = unk.get<std::string>();
      if (!ids_.contains(*parts_.unk_token))
        refuse(Code::tokenizer_invalid, "model.unk_token", "{} is not in model.vocab", shown(unk));
    }
  }

  // Adds a token. The ids of the vocabulary and of the added tokens after it must be 0 to n-1 without gaps or
  // duplicates, because they index tables.
  void add_token(const std::string& token, const Json& id, std::size_t limit, std::string_view where) {
    if (!id.is_number_integer()) {
      refuse(Code::tokenizer_invalid, where, "gives {} the id {}; expected an integer from 0", shown_token(token),
             shown(id));
    }
    if ((!id.is_number_unsigned() && id.get<std::int64_t>() < 0) || id.get<std::uint64_t>() >= limit) {
      refuse(Code::tokenizer_invalid, where, "gives {} the id {}; ids of {} tokens must be 0 to {} without a gap",
             shown_token(token), shown(id), limit, limit - 1);
    }
    const auto index = id.get<std::size_t>();
    if (parts_.tokens.size() < limit) {
      parts_.tokens.resize(limit);
      taken_.resize(limit, false);
    }
    if (taken_[index]) {
      refuse(Code::tokenizer_invalid, where, "gives {} and {} the same id {}", shown_token(parts_.tokens[index]),
             shown_token(token), index);
    }
    taken_[index] = true;
    parts_.tokens[index] = token;
    ids_.emplace(token, static_cast<TokenId>(index));
  }

  void read_vocabulary(const Json& model) {
    if (!model.contains("vocab") || !model["vocab"].is_object()) {
      refuse(Code::tokenizer_invalid, "model.vocab", "is missing; expected an object of tokens and their ids");
    }
    const Json& vocab = model["vocab"];
    if (vocab.empty()) refuse(Code::tokenizer_invalid, "model.vocab", "is empty");
    if (vocab.size() >= (std::size_t{1} << 31))
      refuse(Code::vocabulary_too_large, "model.vocab", "has {} tokens, which is too many", vocab.size());
    for (const auto& [token, id] : vocab.items()) {
      add_token(token, id, vocab.size(), "model.vocab");
    }
    parts_.model_tokens = vocab.size();
  }

  TokenId merge_part(const std::string& token, std::size_t rank) const {
    const auto found = ids_.find(token);
    if (found == ids_.end() || token.empty()) {
      refuse(Code::tokenizer_invalid, "model.merges", "[{}] contains {}, which is not in model.vocab", rank,
             shown_token(token));
    }
    return found->second;
  }

  void read_merges(const Json& model) {
    if (!model.contains("merges") || !model["merges"].is_array()) {
      refuse(Code::tokenizer_invalid, "model.merges", "is missing; expected an array of pairs");
    }
    std::size_t rank = 0;
    std::unordered_map<std::uint64_t, std::size_t> last;
    std::vector<std::pair<TokenId, TokenId>> merges;
    for (const Json& merge : model["merges"]) {
      std::string left, right;
      if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        left = merge[0].get<std::string>();
        right = merge[1].get<std::string>();
      } else if (merge.is_string()) {  // written by older versions
        const std::string& text = merge.get_ref<const std::string&>();
        const std::size_t space = text.find(' ');
        if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
          refuse(Code::tokenizer_invalid, "model.merges", "[{}] is {}; expected two tokens with one space between them",
                 rank, shown(merge));
        }
        left = text.substr(0, space);
        right = text.substr(space + 1);
      } else {
        refuse(Code::tokenizer_invalid, "model.merges", "[{}] is {}; expected a pair of tokens", rank, shown(merge));
      }
      const std::pair<TokenId, TokenId> pair{merge_part(left, rank), merge_part(right, rank)};
      if (!ids_.contains(left + right)) {
        refuse(Code::tokenizer_invalid, "model.merges", "[{}] makes {}, which is not in model.vocab", rank,
               shown_token(left + right));
      }
      last[(static_cast<std::uint64_t>(pair.first) << 32) | static_cast<std::uint32_t>(pair.second)] = rank;
      merges.push_back(pair);
      ++rank;
    }
    // For a duplicate pair the last position counts, as in Hugging Face tokenizers.
    for (std::size_t i = 0; i < merges.size(); ++i) {
      const auto [left, right] = merges[i];
      if (last[(static_cast<std::uint64_t>(left) << 32) | static_cast<std::uint32_t>(right)] == i) {
        parts_.merges.push_back(merges[i]);
      }
    }
  }

  void read_added_tokens(const Json& root) {
    if (!root.contains("added_tokens") || root["added_tokens"].is_null()) return;
    const Json& list = root["added_tokens"];
    if (!list.is_array()) refuse(Code::tokenizer_invalid, "added_tokens", "is {}; expected an array", shown(list));
    std::size_t index = 0, outside = 0;
    Vocabulary seen;
    for (const Json& entry : list) {
      const std::string where = fmt::format("added_tokens[{}]", index++);
      if (!entry.is_object()) refuse(Code::tokenizer_invalid, where, "is {}; expected an object", shown(entry));
      only_known(entry, where + ".", {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
      const Json content = entry.value("content", Json());
      if (!content.is_string() || content.get_ref<const std::string&>().empty()) {
        refuse(Code::tokenizer_invalid, where + ".content", "is {}; expected a string that is not empty",
               shown(content));
      }
      for (const char* name : {"single_word", "lstrip", "rstrip"}) flag(entry, where + ".", name, false, false);
      AddedToken token;
      token.content = content.get<std::string>();
      for (const char* name : {"normalized", "special"}) {
        const Json value = entry.value(name, Json());
        if (!value.is_null() && !value.is_boolean())
          refuse(Code::tokenizer_invalid, where + "." + name, "is {}; expected true or false", shown(value));
      }
      token.special = entry.value("special", Json()) == true;
      token.normalized = entry.value("normalized", Json()) == true;
      if (!seen.emplace(token.content, 0).second)
        refuse(Code::tokenizer_invalid, where, "repeats {}", shown_token(token.content));
      if (!ids_.contains(token.content)) ++outside;
      parts_.added.push_back(std::move(token));
    }
    const std::size_t limit = parts_.model_tokens + outside;
    for (std::size_t i = 0; i < parts_.added.size(); ++i) {
      AddedToken& token = parts_.added[i];
      const std::string where = fmt::format("added_tokens[{}]", i);
      const Json id = list[i].value("id", Json());
      const auto found = ids_.find(token.content);
      if (found == ids_.end()) {
        add_token(token.content, id, limit, where);
      } else if (!id.is_number_integer() || id != found->second) {
        refuse(Code::tokenizer_invalid, where, "gives {} the id {}, but in model.vocab it is {}",
               shown_token(token.content), shown(id), found->second);
      }
      token.id = ids_.find(token.content)->second;
    }
  }

  std::string_view origin_;
  TokenizerParts parts_;
  Vocabulary ids_;
  std::vector<bool> taken_;
};

}  // namespace

Tokenizer Tokenizer::from_json(std::string_view text, std::string_view origin) {
  return Tokenizer(std::make_shared<const Impl>(Reader(origin).read(text)));
}

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  if (!exists_path(path.string()) || folder_exists(path.string())) {
    bad_input(Code::file_not_found, "{}: file not found; expected a {}", path.string(), hugging_face);
  }
  return from_json(read_file(path.string()), path.string());
}

std::string Tokenizer::to_json() const {
  const TokenizerParts& parts = impl_->parts;
  OrderedJson added = OrderedJson::array();
  for (const AddedToken& token : parts.added) {
    added.push_back({{"id", token.id},
                     {"content", token.content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", token.normalized},
                     {"special", token.special}});
  }
  OrderedJson root = {{"version", "1.0"},
                      {"truncation", nullptr},
                      {"padding", nullptr},
                      {"added_tokens", std::move(added)},
                      {"normalizer", nullptr},
                      {"pre_tokenizer", parts.pre_tokenizer},
                      {"post_processor", parts.post_processor},
                      {"decoder", parts.decoder}};
  OrderedJson model = {{"type", "BPE"},
                       {"dropout", nullptr},
                       {"unk_token", parts.unk_token ? OrderedJson(*parts.unk_token) : OrderedJson()},
                       {"continuing_subword_prefix", nullptr},
                       {"end_of_word_suffix", nullptr},
                       {"fuse_unk", false},
                       {"byte_fallback", false},
                       {"ignore_merges", false}};
  // Adding a key to an ordered_json object searches all its keys; its underlying container does not.
  OrderedJson::object_t vocab;
  vocab.reserve(parts.model_tokens);
  for (std::size_t i = 0; i < parts.model_tokens; ++i) {
    static_cast<std::vector<OrderedJson::object_t::value_type>&>(vocab).emplace_back(parts.tokens[i], i);
  }
  model["vocab"] = std::move(vocab);
  OrderedJson::array_t merges;
  merges.reserve(parts.merges.size());
  for (const auto& [left, right] : parts.merges) {
    merges.push_back(OrderedJson::array_t{parts.tokens[static_cast<std::size_t>(left)],
                                          parts.tokens[static_cast<std::size_t>(right)]});
  }
  model["merges"] = std::move(merges);
  root["model"] = std::move(model);
  return root.dump(2);
}

void Tokenizer::save(const std::filesystem::path& path) const { write_output_file(path.string(), to_json()); }

std::uint64_t Tokenizer::hash() const {
  const std::string text = to_json();
  return hash_bytes(text.data(), text.size());
}

}  // namespace some
