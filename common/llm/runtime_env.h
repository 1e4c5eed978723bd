// The process environment that LibTorch's OpenMP runtime reads before main.
#pragma once

namespace sparkv {

// Call first in main. libgomp's threads otherwise spin for milliseconds after each parallel region
// and take the cores from ours. The runtime reads its settings while it is loaded, so this sets
// them and runs the program again, once; the process id stays. Does nothing when the user has set
// OMP_WAIT_POLICY or GOMP_SPINCOUNT, or when running again fails.
void EnsurePassiveOpenMp(int argc, char** argv);

}  // namespace sparkv
