#pragma once

#include <cute/arch/copy_sm90_tma.hpp>

#include "attention/sm90/block_stream.cuh"
#include "attention/sm90/keep_together.cuh"
#include "attention/sm90/tile_finder.cuh"

namespace sparsek::attn::sm90 {

/// A team's producer warp: asks for q tiles, walks their keys and has TMA bring Q, K and V.
template <class Element, class C>
class Producer {
 public:
  __device__ __forceinline__ Producer(const Params& params, Storage<Element, C>& storage, int team)
      : params_(params),
        storage_(storage),
        team_(team),
        lane_(static_cast<int>(threadIdx.x) % 32),
        piece_(lane_ % params.pieces.per_tile),
        slab_(lane_ / params.pieces.per_tile),
        list_piece_{piece_, piece_ / params.pieces.per_block, piece_ % params.pieces.per_block},
        finder_(params, storage, team) {}

  __device__ __forceinline__ void run() {
    if (!C::kScouts) more_ = finder_.find(next_);
    while (true) {
      if constexpr (C::kScouts) take_next();
      if (!more_) break;
      const QTile tile = next_;
      if constexpr (C::kLists) rounds_.wait(params_.schedule, tile);
      load(tile);
    }
    leave_stage();
    announce({Work::kEnd, 0, 0, 0, -1});
  }

 private:
  /// What the scout found.
  __device__ __forceinline__ void take_next() {
    storage_.ring_next.wait_full(next_state_);
    next_ = storage_.next.tile;
    more_ = storage_.next.found;
  }

  /// The list at hand is read as far as it lies in next_list.
  __device__ __forceinline__ void look_up_next() {
    if constexpr (C::kScouts) {
      storage_.ring_next.arrive_empty(next_state_);
      next_state_.advance();
    } else {
      more_ = finder_.find(next_);
    }
  }

  __device__ __forceinline__ void load(const QTile& tile) {
    const std::int32_t q_begin = tile.q_tile * rows_of_tile<C>(params_);
    const std::int32_t q_end = min(q_begin + rows_of_tile<C>(params_), params_.q_len);
    const std::int32_t first = query_of<C>(params_, q_begin);
    const std::int32_t end = C::kPacks ? query_of<C>(params_, q_end - 1) + 1 : q_end;
    const KeyRange visible = visible_keys(params_.band, first, end);
    if constexpr (C::kLists) {
      const KeyRange shared = shared_keys(params_.band, first, end);
      ListStream stream(params_, storage_.queue, storage_.next_list, visible, list_piece_);
      const std::int32_t bitmap_row =
          C::kPacks ? 0 : tile.q_tile % params_.lists.tiles_of_block * C::kTileQ;
      load(tile, stream,
           [&](const Piece& piece, bool last) { note_pieces(piece, last, shared, bitmap_row); });
    } else {
      const GroupQueries queries = queries_of_group(q_begin);
      RangeStream stream(range_of(visible, tile), C::kTileKv);
      load(tile, stream,
           [&](const Piece& piece, bool last) { note_range(piece.key, last, queries); });
    }
  }

  /// The keys of a q tile, or this team's part of them.
  __device__ __forceinline__ KeyRange range_of(const KeyRange& visible, const QTile& tile) const {
    if constexpr (C::kJoins) return share_of(visible, int{C::kTeams}, team_, C::kTileKv);
    if (!C::kShares || tile.part < 0) return visible;
    const Divisor& parts = params_.schedule.shares.parts;
    return share_of(visible, parts, tile.part % parts, C::kTileKv);
  }

  /// Of consumer warpgroup `lane`; the last one lies before the first where there are none.
  struct GroupQueries {
    std::int32_t first, last;
  };
  __device__ __forceinline__ GroupQueries queries_of_group(std::int32_t q_begin) const {
    const std::int32_t row = q_begin + 64 * lane_;
    if (row >= params_.q_len) return {0, -1};
    return {query_of<C>(params_, row), query_of<C>(params_, min(row + 64, params_.q_len) - 1)};
  }

  template <class Stream, class WriteNote>
  __device__ __forceinline__ void load(const QTile& tile, Stream& stream,
                                       const WriteNote& write_note) {
    const bool empty = stream.empty();
    if (empty) leave_stage();
    const Work work{empty ? Work::kEmpty : Work::kTiles, tile.q_tile * rows_of_tile<C>(params_),
                    tile.head, tile.batch, tile.part};
    announce(work);
    // V runs one tile behind K, in the order in which the consumers want them. The next q tile is
    // looked up when the last loads but a few are on their way: nobody waits for it, and no CTA
    // keeps one that another could begin.
    const std::int32_t kv_head = tile.head / params_.group;
    std::int32_t v_key = 0;
    bool looked_up = false;
    bool owes_q = true;
    for (bool first = true, last = false; !last; first = false) {
      last = stream.last();
      if (!empty) {
        const Piece piece = stream.piece();
        // K has to wait for the step before, V only for the one before that.
        if (kValuesFirst && !first) load_v(v_key, kv_head, tile.batch);
        storage_.ring_k.wait_empty(k_state_);
        if (lane_ == 0) {
          storage_.ring_k.expect(k_state_, C::kTileKv * C::kHeadDim * sizeof(Element));
        }
        // Absent keys are read past the end: zeros.
        const std::int32_t key =
            piece.key == kAbsent ? static_cast<std::int32_t>(params_.band.kv_len) : piece.key;
        load_boxes<C::kHeadDim, C::kSlabK>(params_.k, storage_.ring_k, k_state_,
                                           storage_.k[k_state_.stage()], key, kv_head, tile.batch);
        write_note(piece, last);
        if (lane_ < C::kNotedGranules) storage_.ring_k.arrive_full(k_state_);
        k_state_.advance();
        if (first) {
          load_q(work, 0);
        } else if (!kValuesFirst) {
          load_v(v_key, kv_head, tile.batch);
        }
        // The others' parts of Q behind what the first warpgroup wants next.
        if (C::kPartsQ > 1 && owes_q && (!first || last)) {
          for (int part = 1; part < C::kPartsQ; ++part) load_q(work, part);
          owes_q = false;
        }
        v_key = key;
      }
      if (!looked_up && (last || (!first && stream.near_end()))) {
        look_up_next();
        looked_up = true;
      }
      if (!last) stream.advance();
      if constexpr (C::kKeepsStep) step_.step(params_.schedule, tile);
    }
    if (!empty) load_v(v_key, kv_head, tile.batch);
    owes_stage_ = C::kStagesOut;
  }

  /// Leaves the stage behind a q tile's V to its O: late, when the next Q and K are under way.
  __device__ __forceinline__ void leave_stage() {
    if (!C::kStagesOut || !owes_stage_) return;
    storage_.ring_v.wait_empty(v_state_);
    if (lane_ == 0) storage_.ring_v.arrive_full(v_state_);
    v_state_.advance();
    owes_stage_ = false;
  }

  __device__ __forceinline__ void announce(const Work& work) {
    storage_.ring_work.wait_empty(work_state_);
    if (lane_ == 0) {
      storage_.work[work_state_.stage()] = work;
      storage_.ring_work.arrive_full(work_state_);
    }
    work_state_.advance();
  }

  __device__ __forceinline__ void load_q(const Work& work, int part) {
    auto& ring = storage_.ring_q[part];
    ring.wait_empty(q_state_);
    if (lane_ == 0) {
      ring.arrive_expecting(q_state_,
                            rows_of_tile<C>(params_) / C::kPartsQ * C::kHeadDim * sizeof(Element));
      for (int slab = 0; slab < C::kHeadDim / C::kSlabK; ++slab) {
        Element* const to = storage_.q + (slab * C::kTileQ + part * C::kRowsOfPart) * C::kSlabK;
        if constexpr (C::kPacks) {
          cute::SM90_TMA_LOAD_5D::copy(&params_.q, &ring.full[0], kReadOnce, to, slab * C::kSlabK,
                                       0, query_of<C>(params_, work.q_begin), work.head,
                                       work.batch);
        } else {
          cute::SM90_TMA_LOAD_4D::copy(&params_.q, &ring.full[0], kReadOnce, to, slab * C::kSlabK,
                                       work.q_begin + part * C::kRowsOfPart, work.head, work.batch);
        }
      }
    }
    __syncwarp();
    if (part == C::kPartsQ - 1) q_state_.advance();
  }

  __device__ __forceinline__ void load_v(std::int32_t key, std::int32_t kv_head,
                                         std::int32_t batch) {
    leave_stage();
    storage_.ring_v.wait_empty(v_state_);
    if (lane_ == 0) {
      storage_.ring_v.arrive_expecting(v_state_, C::kTileKv * C::kValueDim * sizeof(Element));
    }
    load_boxes<C::kValueDim, C::kSlabV>(params_.v, storage_.ring_v, v_state_,
                                        storage_.v[v_state_.stage()], key, kv_head, batch);
    v_state_.advance();
  }

  /// Each lane sends for one box: a slab of columns of its piece. The stage expects them.
  template <int kDim, int kSlab, class StageRing, class State>
  __device__ __forceinline__ void load_boxes(const CUtensorMap& map, StageRing& ring,
                                             const State& state, Element* tile, std::int32_t key,
                                             std::int32_t kv_head, std::int32_t batch) {
    __syncwarp();
    if (slab_ < kDim / kSlab) {
      const std::int32_t row = piece_ * params_.pieces.keys;
      cute::SM90_TMA_LOAD_4D::copy(&map, &ring.full[state.stage()], keys_hint(),
                                   tile + (slab_ * C::kTileKv + row) * kSlab, slab_ * kSlab, key,
                                   kv_head, batch);
    }
    __syncwarp();
  }

  /// Tells the consumers what the stage will hold: consecutive keys.
  __device__ __forceinline__ void note_range(std::int32_t key, bool last,
                                             const GroupQueries& queries) {
    const std::int32_t end = key + C::kTileKv;
    const KeyRange seen = visible_keys(params_.band, queries.first, queries.last + 1);
    const KeyRange shared = shared_keys(params_.band, queries.first, queries.last + 1);
    const bool ended = last || queries.last < queries.first || seen.end <= end;
    const bool hidden = C::kHides && !ended && seen.begin >= end;
    const auto groups = [&](bool of_group) {
      return __ballot_sync(~0u, lane_ < C::kConsumers && of_group);
    };
    const std::uint32_t flags = groups(ended) * kEnded | groups(hidden) * kHidden |
                                groups(!contains(shared, key, end)) * kMasked;
    if (lane_ == 0) {
      auto& note = storage_.notes[k_state_.stage()];
      note.granules[0].key = key;
      note.flags = flags | (last ? kLast : 0);
    }
  }

  /// The same: pieces of listed blocks.
  __device__ __forceinline__ void note_pieces(const Piece& piece, bool last, const KeyRange& shared,
                                              std::int32_t bitmap_row) {
    const bool masked =
        __any_sync(~0u, lane_ < params_.pieces.per_tile &&
                            (piece.bitmap >= 0 || piece.key == kAbsent ||
                             !contains(shared, piece.key, piece.key + params_.pieces.keys)));
    auto& note = storage_.notes[k_state_.stage()];
    if (masked) {
      const std::int32_t offset = lane_ * kGranule;
      const std::int32_t index = offset / params_.pieces.keys;
      const std::int32_t piece_key = __shfl_sync(~0u, piece.key, index);
      const std::int32_t block_begin = __shfl_sync(~0u, piece.block_begin, index);
      const std::int32_t bitmap = __shfl_sync(~0u, piece.bitmap, index);
      Granule granule{kAbsent, 0, -1};
      if (piece_key != kAbsent) {
        granule.key = piece_key + offset - index * params_.pieces.keys;
        if (bitmap >= 0) {
          const std::int32_t column = granule.key - block_begin;
          granule.shift = column % 32;
          granule.word = (bitmap * params_.mask.q_block + bitmap_row) * bitmap_words(params_.mask) +
                         column / 32;
        }
      }
      if (lane_ < C::kNotedGranules) note.granules[lane_] = granule;
    }
    if (C::kAsksWeights && lane_ < params_.pieces.per_tile) {
      storage_.piece_keys_of(k_state_)[lane_] = piece.key;
    }
    if (lane_ == 0) note.flags = (last ? kLast : 0) | (masked ? kMasked : 0);
  }

  static constexpr bool kValuesFirst = C::kStagesK < C::kStages;

  static constexpr auto kReadOnce =
      static_cast<std::uint64_t>(cute::TMA::CacheHintSm90::EVICT_FIRST);
  static constexpr auto kReadOften =
      static_cast<std::uint64_t>(cute::TMA::CacheHintSm90::EVICT_LAST);
  /// Of K and V.
  __device__ __forceinline__ std::uint64_t keys_hint() const {
    return C::kLists && params_.keys_read_once ? kReadOnce : kReadOften;
  }

  const Params& params_;
  Storage<Element, C>& storage_;
  int team_;
  int lane_;
  int piece_;  // of a tile, this lane's
  int slab_;   // of its columns, this lane's
  LanePiece list_piece_;
  TileFinder<Element, C> finder_;
  RingState<1> next_state_;
  bool more_ = false;
  QTile next_;
  RoundKeeper rounds_;
  StepKeeper step_;
  RingState<C::kStagesK> k_state_;
  RingState<C::kStages> v_state_;
  bool owes_stage_ = false;
  RingState<1> q_state_;
  RingState<2> work_state_;
};

}  // namespace sparsek::attn::sm90
