#pragma once

#include "sparsek/attention.h"
#include "sparsek/backend.h"
#include "sparsek/block_mask.h"
#include "sparsek/bsr_gemm.h"
#include "sparsek/bsr_matrix.h"
#include "sparsek/error.h"
#include "sparsek/system.h"
#include "sparsek/tensor.h"
#include "sparsek/threads.h"
#include "sparsek/types.h"
#include "sparsek/version.h"
