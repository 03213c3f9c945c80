#include <vector>

#include "core/message.h"
#include "sparsek/block_mask.h"

namespace sparsek {

void check_block_mask(const BlockMaskView& mask) {
  require_value(mask.device.type == DeviceType::cpu,
                "mask: expected lists in host memory, got them on ", to_string(mask.device));
  require_value(mask.q_block >= 1 && mask.kv_block >= 1,
                "mask: expected positive block lengths, got q_block ", mask.q_block,
                " and kv_block ", mask.kv_block);
  require_value((mask.offsets != nullptr) != (mask.counts != nullptr),
                "mask: expected either offsets or counts, got ", mask.offsets ? "both" : "neither");
  const std::int64_t nk = mask.num_kv_blocks();
  std::vector<std::int64_t> seen_in(static_cast<std::size_t>(nk),
                                    -1);  // the last list that names a block
  for (std::int64_t list = 0; list < mask.num_lists(); ++list) {
    std::int64_t begin = 0, end = 0;
    if (mask.counts != nullptr) {
      require_value(mask.counts[list] >= 0 && mask.counts[list] <= mask.max_count, "mask.counts[",
                    list, "]: expected 0 to ", mask.max_count, ", got ", mask.counts[list]);
      begin = list * mask.max_count;
      end = begin + mask.counts[list];
    } else {
      begin = mask.offsets[list];
      end = mask.offsets[list + 1];
      require_value(begin >= 0 && begin <= end, "mask.offsets[", list, "]: expected 0 to ", end,
                    ", got ", begin);
    }
    require_value(end <= mask.num_indices, "mask: expected list ", list, " to end by entry ",
                  mask.num_indices, ", got ", end);
    for (std::int64_t entry = begin; entry < end; ++entry) {
      const std::int32_t block = mask.indices[entry];
      require_value(block >= 0 && block < nk, "mask.indices[", entry, "]: expected 0 to ", nk - 1,
                    ", got ", block);
      require_value(seen_in[block] != list, "mask.indices[", entry, "]: block ", block,
                    " is listed twice in list ", list);
      seen_in[block] = list;
      if (mask.bitmap_indices != nullptr) {
        const std::int32_t bitmap = mask.bitmap_indices[entry];
        require_value(bitmap >= -1 && bitmap < mask.num_bitmaps, "mask.bitmap_indices[", entry,
                      "]: expected -1 to ", mask.num_bitmaps - 1, ", got ", bitmap);
      }
    }
  }
}

}  // namespace sparsek
