// For the test of scripts/one-definition: the same name as in first.h. Never compiled.
namespace some {
struct Once;  // a declaration is no definition
class Twice {
  double b = 0;
};
namespace {
struct Local {};  // of this file, and of first.cc, which would be compiled together with it
using Numbers = std::vector<int>;
double half(double of) { return of / 2; }
double seconds_since(Clock::time_point start) { return (Clock::now() - start).count(); }
}  // namespace
}  // namespace some
