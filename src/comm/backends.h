// The libraries that connect ranks, which are opened only when several ranks are started.
#pragma once

#include <string>

namespace some {

// Returns why several ranks cannot be started here; empty if they can.
std::string mpi_problem();
// Returns why ranks cannot exchange data between GPUs with NCCL; empty if they can.
std::string nccl_problem();

}  // namespace some
