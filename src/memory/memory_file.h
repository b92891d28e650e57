// File format of a memory: a safetensors file (tensor/safetensors.h) with the tensors of the store, `born` and `hit` as
// [K, M, 2] (text, offset), and the tokens of every text as text.N. K is left out of all shapes if slots hold one token
// each; `centroids` is missing if the store has one partition. The metadata identifies the model and contains the
// settings and the history. It lists the names of the texts and, for texts that were files, a hash of the path. Two
// names of one file are therefore one text, and no folder of the user is revealed.
#pragma once

#include <string>

#include "memory/memory.h"
#include "runtime/context.h"

namespace some {

// Writes the file atomically: a reader sees either the old or the new file. If `path` is a link, its target is
// replaced.
void save_memory(const Memory& memory, const std::string& path);
// Saves a memory, once or repeatedly. Fails if another program has written the file since: saving would lose what that
// program learned.
class MemorySaver {
 public:
  explicit MemorySaver(const std::string& path);  // must be constructed before the memory is loaded
  void save(const Memory& memory);

 private:
  std::string path_, version_;
};
// Loads a memory to the context's device in its master precision. Everything in the file is checked before use:
// bad_input names the file and the problem.
Memory load_memory(Context& ctx, const std::string& path);
// Returns the precision whose master type is that of the file, so that maintenance commands do not convert the memory.
Precision precision_of(const std::string& path);

}  // namespace some
