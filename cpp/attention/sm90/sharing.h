#pragma once

#include "attention/sm90/choice.h"

namespace sparsek::attn::sm90 {

/// Has teams share the keys of tiles, by `choice->shares`, where that ends sooner than whole tiles:
/// of all tiles where they are few, or of the last round's. Without lists, and for packed heads, by
/// another kernel.
void share_tiles(const Problem& problem, Choice* choice);

}  // namespace sparsek::attn::sm90
