// A memory on disk: a safetensors file (tensor/safetensors.h) with the tensors of the store, `born` and `hit` as [K, M,
// 2] (text, offset), and the tokens of every text as text.N. Where slots hold one token each, K is left out of all
// shapes; where the store is one part there are no `centres`. Its metadata says which model it belongs to, the settings
// and what was read: names, and of texts that were files the hash of where these were, so that two names of one file
// are one text and no folder of the reader's is told.
#pragma once

#include <string>

#include "memory/memory.h"
#include "runtime/context.h"

namespace some {

// Atomically: a reader meets the file before or the file after. Where `path` is a link, what it leads to is written.
void save_memory(const Memory& memory, const std::string& path);
// Saves a memory, once or time after time, and fails where another program has written the file since: what that one
// has learnt would be lost.
class MemoryKeeper {
 public:
  explicit MemoryKeeper(const std::string& path);  // made before anything is loaded
  void save(const Memory& memory);

 private:
  std::string path_, version_;
};
// On the context's device in its master precision. Nothing of the file is believed before it is checked: bad_input
// names the file and what is wrong.
Memory load_memory(Context& ctx, const std::string& path);
// The precision whose master numbers are those that the file holds: a memory that is only tended keeps them.
Precision precision_of(const std::string& path);

}  // namespace some
