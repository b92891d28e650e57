// Experiments on trained models that the board runs on request: ablation of experts, and the comparison of the routing
// of two runs. Both read the validation text of the run.
#pragma once

#include <memory>
#include <string>

#include "board/ask.h"
#include "board/watch.h"
#include "http/http.h"

namespace some {

// Answers {run, unit, layer, documents, shuffles} with JSON lines: {"kind": "waiting"}, {"kind": "progress", "done",
// "total"}, and {"kind": "end", "report": as of 'some ablate --json'} or {"kind": "error"}. Throws (bad_input) for an
// invalid request.
void answer_ablate(const Watch& watch, GenerationService& models, const Request& request, const Answer& answer);
// The same for {first, second, documents, shuffles} and the report of 'some routes --json'.
void answer_routes(const Watch& watch, GenerationService& models, const Request& request, const Answer& answer);

}  // namespace some
