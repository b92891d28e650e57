// For the test of scripts/one-definition: the same name as in second.cc. Never compiled.
namespace some::study {
struct Twice {
  int a;
};
struct Once {};
namespace {
struct Local {};
}  // namespace
}  // namespace some::study
