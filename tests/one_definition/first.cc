// For the test of scripts/one-definition: what second.cc has in its unnamed namespace, too. Never compiled.
#include "first.h"

namespace some {
namespace {
using Numbers = std::vector<int>;  // the same in both: allowed
using Local = std::vector<int>;    // a type there
double half(double value) { return value / 2; }
int half(int value) { return value / 2; }  // other parameters: allowed
}  // namespace
}  // namespace some
