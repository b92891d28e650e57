// For the test of scripts/one-definition: the same name as in second.cc. Never compiled.
namespace some {
struct Twice {
  int a;
};
struct Once {};
namespace {
struct Local {};
}  // namespace
}  // namespace some
