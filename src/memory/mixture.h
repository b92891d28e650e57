// Mixes the memory's predictions into the losses concurrently with the memory updates. The mixture is sequential over
// targets: each step waits for the previous one and uses a small part of a GPU. No update depends on its result; an
// update requires only the nearest slots of a search.
#pragma once

#include <memory>

#include "memory/store.h"

namespace some {

// State of a device for concurrent mixing: empty at first, and always empty on the CPU. Must not outlive the context.
using Mixing = std::shared_ptr<void>;

// Runs search() and mix() of memory/store.h, after all work already queued on the context. found.nearest is available
// to learn() at once; everything else runs concurrently with the work queued next. Its inputs, its outputs and the
// arena memory it takes must therefore stay valid until finish_mixing().
SOME_OP(void, search_and_mix_concurrently,
        (Context & ctx, Mixing& mixing, const Store& store, const MemorySettings& settings, const Tensor& queries,
         const Tensor& targets, Matches& found, Tensor& shares, Tensor& nll),
        (ctx, mixing, store, settings, queries, targets, found, shares, nll))
// Makes all work queued on the context from here on wait for the concurrent mixing.
SOME_OP(void, finish_mixing, (Context & ctx, const Mixing& mixing), (ctx, mixing))

}  // namespace some
