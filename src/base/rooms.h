// The rooms of the house as namespaces, in their order: a room sees the names of the rooms before it, as it sees their
// headers, and never those of a room after it. base itself is `some`. Of two rooms that give the same name to
// different things each sees its own first; whoever sees both says which is meant (KeySnapshot).
//
// An operation's two implementations stand in cpu and cuda inside its room (runtime/op.h); the device itself, which
// they work with, is base's some::cuda.
#pragma once

namespace some {

namespace cuda {}

namespace text {}
namespace data {}
namespace ops {
namespace cuda {
using namespace some::cuda;
}
}  // namespace ops
namespace experts {
namespace cuda {
using namespace some::cuda;
using namespace cuda;
}  // namespace cuda
}  // namespace experts
namespace keys {
namespace cuda {
using namespace some::cuda;
using namespace cuda;
}  // namespace cuda
}  // namespace keys
namespace model {}  // namespace model
namespace memory {
namespace cuda {
using namespace some::cuda;
using namespace cuda;
}  // namespace cuda
}  // namespace memory
namespace train {}
namespace page {}
namespace study {}  // namespace study
namespace lab {}
namespace board {}
namespace exchange {}
namespace cli {}

}  // namespace some
