// Replaces the program's own measurement in some_traced: there is no GPU to measure, and drawing two large random
// matrices would take most of the time of a short run.
#include "train/matrix_rate.h"

double some::measure_gemm_rate(Context&) { return 1e15; }
