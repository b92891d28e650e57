// Mixing beside the lessons: what the store says is mixed in target by target, each step waiting for the one before it,
// which keeps next to nothing of a GPU busy, and no lesson waits for the result.
#pragma once

#include <memory>

#include "memory/store.h"

namespace some::memory {

// What a device needs for it: nothing at first, and nothing ever on the CPU. Must not outlive the context.
using Mixing = std::shared_ptr<void>;

// mix() of memory/store.h, after everything that the context was given before, but beside what it is given next. What
// it reads and writes must stay until finish_mixing().
SOME_OP(void, mix_beside,
        (Context & ctx, Mixing& mixing, const MemorySettings& settings, const Found& found, const Tensor& targets,
         Tensor& shares, Tensor& nll),
        (ctx, mixing, settings, found, targets, shares, nll))
// What the context is given from here on comes after all that is mixed beside it.
SOME_OP(void, finish_mixing, (Context & ctx, const Mixing& mixing), (ctx, mixing))

}  // namespace some::memory
