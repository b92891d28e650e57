// Mixing beside the lessons: what the store says is mixed in target by target, each step waiting for the one before it,
// which keeps next to nothing of a GPU busy, and no lesson waits for the result. Nor does it wait for what the store
// says: of a search it wants the nearest slots alone.
#pragma once

#include <memory>

#include "memory/store.h"

namespace some {

// What a device needs for it: nothing at first, and nothing ever on the CPU. Must not outlive the context.
using Mixing = std::shared_ptr<void>;

// search() and mix() of memory/store.h, after everything that the context was given before. What is found is there for
// learn(); everything else is done beside what the context is given next, so that what it reads and writes, and memory
// that this takes from the arena, must stay until finish_mixing().
SOME_OP(void, search_and_mix_concurrently,
        (Context & ctx, Mixing& mixing, const Store& store, const MemorySettings& settings, const Tensor& queries,
         const Tensor& targets, Matches& found, Tensor& shares, Tensor& nll),
        (ctx, mixing, store, settings, queries, targets, found, shares, nll))
// What the context is given from here on comes after all that is done beside it.
SOME_OP(void, finish_mixing, (Context & ctx, const Mixing& mixing), (ctx, mixing))

}  // namespace some
