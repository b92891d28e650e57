// Ranks linked by TCP, for schedulers that start processes but have no MPI. It needs nothing that is not in the system.
#pragma once

#include <memory>
#include <string>

#include "comm/link.h"

namespace some {

// at: HOST:PORT, where rank 0 listens, or the path of a file (it has a '/') that rank 0 writes its address to and the
// others wait for. Only those who know `secret` (what the file holds, or the environment's SOME_RANKS_SECRET) are let
// in. Throws where the ranks do not find each other in time.
std::unique_ptr<Link> open_tcp_link(int rank, int size, const std::string& at, const LinkOptions& options);

}  // namespace some
