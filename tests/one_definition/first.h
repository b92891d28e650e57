// For the test of scripts/one-definition: the same name as in second.cc. Never compiled.
namespace some {
struct Twice {
  int a;
};
struct Once {};
double seconds_since(std::chrono::steady_clock::time_point then);  // as in second.cc, which does not include this
double seconds_since(int other);                                   // other parameters: allowed
namespace {
struct Local {};
}  // namespace
}  // namespace some
