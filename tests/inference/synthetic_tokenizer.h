// A tokenizer of any size without training: [UNK], [PAD], [EOS], then the words w3, w4, ...
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace some {

inline Tokenizer synthetic_tokenizer(int vocab) {
  std::string words = "\"[UNK]\":0,\"[PAD]\":1,\"[EOS]\":2";
  for (int id = 3; id < vocab; ++id) words += ",\"w" + std::to_string(id) + "\":" + std::to_string(id);
  return Tokenizer::from_json(
      R"({"version":"1.0","pre_tokenizer":{"type":"Whitespace"},"model":{"type":"BPE","unk_token":"[UNK]","vocab":{)" +
      words + R"(},"merges":[]}})");
}

// With these bytes as tokens from id 3 on (printable ASCII only), and GPT-2's alphabet.
inline Tokenizer byte_tokenizer(const std::vector<std::string>& tokens) {
  std::string words = "\"[UNK]\":0,\"[PAD]\":1,\"[EOS]\":2";
  for (std::size_t i = 0; i < tokens.size(); ++i) words += ",\"" + tokens[i] + "\":" + std::to_string(i + 3);
  const std::string added = R"({"id":2,"content":"[EOS]","single_word":false,"lstrip":false,"rstrip":false,)"
                            R"("normalized":false,"special":true})";
  return Tokenizer::from_json(
      R"({"version":"1.0","added_tokens":[)" + added +
      R"(],"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"},)"
      R"("model":{"type":"BPE","vocab":{)" +
      words + R"(},"merges":[]}})");
}

}  // namespace some
