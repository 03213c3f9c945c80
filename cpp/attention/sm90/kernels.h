#pragma once

#include <cuda_runtime_api.h>

#include "attention/sm90/config.h"
#include "attention/sm90/params.h"
#include "sparsek/types.h"

namespace sparsek::attn::sm90 {

// head_dim, value_dim, tile_q, tile_kv, stages, lists, ctas_per_sm, overlap, teams, stages_k,
// packs, joins, free. docs/attention_sm90_measurements.md has the sweep behind each. Small: more
// CTAs where the chip is not full.
using Dense64 = Config<64, 64, 192, 128, 4, false, 1, true, 1, 4, false, false, true>;
// For lengths that 192 does not divide.
using Dense64Wide = Config<64, 64, 256, 64, 4, false, 1, true, 1, 4, false, false, true>;
using Dense64Small = Config<64, 64, 128, 128, 2, false>;
using Dense64Joined = Config<64, 64, 128, 64, 4, false, 1, true, 2, 4, false, true>;
using Dense96 = Config<96, 96, 192, 112, 3, false, 1, true, 1, 3, false, false, true>;
using Dense96Small = Config<96, 96, 128, 128, 3, false>;
using Dense128 = Config<128, 128, 192, 80, 3, false, 1, true, 1, 3, false, false, true>;
using Dense128Small = Config<128, 128, 128, 128, 3, false>;
using Dense192x128 = Config<192, 128, 192, 80, 2, false, 1, true, 1, 2, false, false, true>;
using Dense192x128Small = Config<192, 128, 128, 128, 2, false>;
using Dense192 = Config<192, 192, 128, 112, 2, false>;
using Dense256 = Config<256, 256, 128, 80, 2, false>;

// For few q tiles, whose keys CTAs share, and the heads of few queries.
using Split64 = Config<64, 64, 64, 128, 2, false, 3, false, 1, 2, true>;
using Split128 = Config<128, 128, 128, 128, 3, false, 1, true, 1, 3, true>;
using Split256 = Config<256, 256, 64, 64, 2, false, 1, true, 1, 2, true>;

using Lists64 = Config<64, 64, 128, 64, 4, true, 1, false, 2>;
using Lists64Small = Config<64, 64, 128, 128, 3, true>;
using Lists96 = Config<96, 96, 128, 128, 3, true>;
using Lists128 = Config<128, 128, 128, 128, 3, true, 1, true, 1, 3, false, false, true>;
using Lists192x128 = Config<192, 128, 128, 96, 2, true>;
using Lists192 = Config<192, 192, 128, 64, 2, true>;
using Lists256 = Config<256, 256, 128, 64, 2, true, 1, false>;

// For q blocks of 64.
using NarrowLists64 = Config<64, 64, 64, 128, 2, true, 1, false, 3>;
using NarrowLists128 = Config<128, 128, 64, 64, 2, true, 1, true, 3, 1>;
using NarrowLists256 = Config<256, 256, 64, 64, 2, true>;

// For the heads of few queries that share a list.
using PackedLists64 = Config<64, 64, 128, 128, 3, true, 1, true, 1, 3, true>;
using PackedLists128 = Config<128, 128, 128, 128, 3, true, 1, true, 1, 3, true>;
using PackedLists256 = Config<256, 256, 64, 64, 2, true, 1, true, 1, 2, true>;

/// Enqueues the attention kernel of a configuration.
template <class C>
void launch(DType dtype, const Params& params, int num_ctas, cudaStream_t stream);

// What is enqueued before it where the schedule has a progress. Where that hands out tiles
// (`schedule.progress`) the kernel waits for it after its first q tiles only: these are the `first`
// ones of the schedule, a tile for each team.

/// Fills `schedule.order` from place `first` on with the other tiles, those with the longest lists
/// first, unless all are about equal, and sets `schedule.progress`. `tile_q`: queries of a tile.
void order_tiles(const Params& params, int tile_q, int first, cudaStream_t stream);

/// Sets `progress` to place `first`, for tiles that are taken as they are numbered, and to none of
/// the stretches.
void start_tiles(Progress* progress, int first, cudaStream_t stream);

}  // namespace sparsek::attn::sm90
