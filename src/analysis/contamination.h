// What a memory knows of a text already: which of its texts that is, how far it was read, and how much of a text that
// it is to be measured on stands in what it has read.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "memory/memory.h"
#include "runs/run.h"

namespace some {

// The number of the memory's text that a text to be read is: one of the same name or, whatever it is called, of the
// same file, that begins with the same tokens; none: it is new. `end`: the token that ends a document; where a file has
// grown since, the part that was read has one too many. bad_input where the file holds another text now; `path` is the
// memory's, for what to do about it.
std::optional<std::size_t> known_text(const Memory& memory, const std::string& path, const std::string& source,
                                      std::span<const std::int32_t> tokens, std::optional<TokenId> end);
// A text as the memory reads on in it: what it has read, and what `tokens` has behind that. What a document has grown
// by follows the end that it had, as a document of its own.
std::vector<std::int32_t> read_on(const MemoryText& known, std::span<const std::int32_t> tokens,
                                  std::optional<TokenId> end);

// The hash of where the file or folder lies that a text comes from; empty for built-in text.
std::string file_of(const std::string& source);

// How many of a text's first `stories` documents (0: all) a memory has read word for word, wholly or a long piece.
struct DocumentsKnown {
  std::int64_t known = 0, of = 0;
};
DocumentsKnown documents_known(const Memory& memory, const TokenData& data, std::int64_t stories,
                               std::optional<TokenId> end);
// The same, with a warning where there are some: what the memory gains there is no measure of what it gains elsewhere.
DocumentsKnown warn_of_known(const OpenedRun& run, const Memory& memory, const TokenData& data, std::int64_t stories,
                             const std::string& text);

}  // namespace some
