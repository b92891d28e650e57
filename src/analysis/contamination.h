// Overlap of a text with a memory (contamination): which of the memory's texts it is, how much of it was read, and how
// much of an evaluation text the memory has read.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "memory/memory.h"
#include "runs/run.h"

namespace some {

// Returns the index of the memory's text that is the same as a text to be read: it has the same name or the same file
// (under any name) and begins with the same tokens; none if the text is new. `end` is the token that ends a document:
// if a file has grown since it was read, the part read has one extra `end`. Throws (bad_input) if the file now contains
// another text; `path` is the memory's file, for the error message.
std::optional<std::size_t> find_known_text(const Memory& memory, const std::string& path, const std::string& source,
                                           std::span<const std::int32_t> tokens, std::optional<TokenId> end);
// Returns the text from which the memory continues reading: the tokens it has read, followed by the new rest of
// `tokens`. Text appended to a document comes after the document's former end, as a separate document.
std::vector<std::int32_t> read_on(const MemoryText& known, std::span<const std::int32_t> tokens,
                                  std::optional<TokenId> end);

// Returns the hash of the path of the file or folder that a text comes from; empty for built-in text.
std::string file_of(const std::string& source);

// Counts how many of a text's first `stories` documents (0: all) a memory has read verbatim, completely or in a long
// piece.
struct DocumentOverlap {
  std::int64_t known = 0, of = 0;
};
DocumentOverlap document_overlap(const Memory& memory, const TokenData& data, std::int64_t max_documents,
                                 std::optional<TokenId> end);
// Does the same and logs a warning if there are any: the memory's gain on them does not measure its gain on other text.
DocumentOverlap warn_about_overlap(const OpenedRun& run, const Memory& memory, const TokenData& data,
                                   std::int64_t max_documents, const std::string& text);

}  // namespace some
