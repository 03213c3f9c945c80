#pragma once

namespace sparsek {

/// Threads that a call on the CPU may use: what `set_num_threads` set, else the environment
/// variable SPARSEK_NUM_THREADS, else the CPUs that this process may run on.
int num_threads();

/// For the whole process; 0 goes back to the default. Throws Error for a negative count.
void set_num_threads(int count);

}  // namespace sparsek
