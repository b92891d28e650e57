// The rooms of the house as namespaces, in their order: a room sees the names of the rooms before it, as it sees their
// headers, and never those of a room after it. base itself is `some`. Of two rooms that give the same name to
// different things each sees its own first; whoever sees both says which is meant (study::KeySnapshot).
//
// An operation's two implementations stand in cpu and cuda inside its room (ops/op.h); the device itself, which they
// work with, is base's some::cuda.
#pragma once

namespace some {

namespace cuda {}

namespace text {}
namespace data {
using namespace text;
}
namespace ops {
namespace cuda {
using namespace some::cuda;
}
}  // namespace ops
namespace experts {
using namespace ops;
namespace cuda {
using namespace some::cuda;
using namespace ops::cuda;
}  // namespace cuda
}  // namespace experts
namespace keys {
using namespace ops;
namespace cuda {
using namespace some::cuda;
using namespace ops::cuda;
}  // namespace cuda
}  // namespace keys
namespace model {
using namespace data;
using namespace experts;
using namespace keys;
}  // namespace model
namespace memory {
using namespace model;
namespace cuda {
using namespace some::cuda;
using namespace ops::cuda;
}  // namespace cuda
}  // namespace memory
namespace train {
using namespace memory;
}
namespace page {
using namespace text;
}
namespace study {
using namespace train;
using namespace page;
}  // namespace study
namespace lab {
using namespace study;
}
namespace board {
using namespace lab;
}
namespace exchange {
using namespace lab;
}
namespace cli {
using namespace lab;
}

}  // namespace some
