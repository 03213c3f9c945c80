#pragma once

#include <cute/tensor.hpp>

#include "attention/sm90/masking.cuh"
#include "attention/sm90/params.h"
#include "attention/sm90/row_softmax.cuh"
#include "attention/sm90/scores_again.cuh"
#include "attention/sm90/storage.cuh"
#include "attention/sm90/tma_store.cuh"
#include "primitives/reduce.cuh"

namespace sparsek::attn::sm90 {

/// One consumer warpgroup: 64 queries of the CTA's tile.
///
/// A thread holds, of S and O, rows row() and row() + 8 of its warpgroup and, of each 8 columns,
/// two: element 4 * j + 2 * r + c is row r, column 8 * j + 2 * (lane % 4) + c.
template <class Element, class C>
class Consumer {
 public:
  using L = Layouts<Element, C>;
  using MmaQK = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<
          Element, Element, float,
          cute::Shape<cute::_64, cute::Int<C::kTileKv>, cute::Int<C::kHeadDim>>>()));
  using MmaPV = decltype(cute::make_tiled_mma(
      cute::GMMA::rs_op_selector<
          Element, Element, float,
          cute::Shape<cute::_64, cute::Int<C::kValueDim>, cute::Int<C::kTileKv>>,
          cute::GMMA::Major::K, cute::GMMA::Major::MN>()));
  using Scores = decltype(cute::partition_fragment_C(
      MmaQK{}, cute::Shape<cute::_64, cute::Int<C::kTileKv>>{}));
  using Accumulator = decltype(cute::partition_fragment_C(
      MmaPV{}, cute::Shape<cute::_64, cute::Int<C::kValueDim>>{}));

  __device__ __forceinline__ Consumer(const Params& params, Storage<Element, C>& storage,
                                      int warp_group)
      : params_(params),
        storage_(storage),
        group_(C::kConsumers == 1 ? 0
                                  : warp_group % C::kConsumers),  // a constant takes no register
        team_(C::kTeams == 1 ? 0 : warp_group / C::kConsumers),
        thread_(threadIdx.x % kWarpGroup) {}

  /// The row of the tile that this thread's first row is.
  __device__ __forceinline__ int row() const {
    return group_ * 64 + thread_ / 32 * 16 + thread_ % 32 / 4;
  }

  __device__ __forceinline__ void begin() {
    // The first turn is warpgroup 0's.
    if (C::kPingPong && group_ == C::kConsumers - 1) pass_turn();
  }

  /// O of one q tile, not yet divided by the rows' sums.
  __device__ __forceinline__ void compute(const Work& work, Accumulator& tOrO,
                                          RowSoftmax& softmax) {
    if constexpr (C::kOverlap) {
      compute_overlapped(work, tOrO, softmax);
    } else {
      compute_in_turn(work, tOrO, softmax);
    }
  }

  __device__ __forceinline__ static void set_zero(Accumulator& tOrO) {
    CUTE_UNROLL
    for (int i = 0; i < cute::size(tOrO); ++i) tOrO(i) = 0;
  }

  /// The q tile to do, in shared memory until finish_work: registers are short.
  __device__ __forceinline__ const Work& next_work() {
    storage_.ring_work.wait_full(work_state_);
    return storage_.work[work_state_.stage()];
  }
  /// Where O goes on its way to memory, once TMA has read what lay there.
  __device__ __forceinline__ Element* out_tile() {
    if constexpr (C::kStagesOut) {
      storage_.ring_v.wait_full(v_state_);
      owes_stage_ = true;
      return storage_.v[v_state_.stage()];
    } else if constexpr (C::kBuffersOut) {
      wait_for_tma_store();
      return storage_.out;
    }
    return nullptr;
  }
  /// Gives the stage back that O was in, once TMA has read it.
  __device__ __forceinline__ void leave_out_tile() {
    if (C::kStagesOut && owes_stage_) {
      wait_for_tma_store();
      release(storage_.ring_v, v_state_);
      owes_stage_ = false;
    }
  }
  /// Counts the q tiles.
  __device__ __forceinline__ const RingState<2>& work_state() const { return work_state_; }
  __device__ __forceinline__ void finish_work() {
    storage_.ring_work.arrive_empty(work_state_);
    work_state_.advance();
  }

 private:
  using Note = TileNote<C::kNotedGranules>;

  /// This warpgroup's bit of a flag that each has; with lists all have the same.
  __device__ __forceinline__ std::uint32_t mine(std::uint32_t flag) const {
    return C::kLists ? flag : flag << group_;
  }
  /// -inf where the query may not see the key.
  __device__ __forceinline__ void erase(const Note& note, const Work& work, Scores& tSrS) const {
    RowMask<C>(params_, work, row()).erase(note, tSrS);
  }

  /// Lane 0 reads a note (storage.cuh).
  __device__ __forceinline__ std::uint32_t flags_of(const Note& note) const {
    return uniform(thread_ % 32 == 0 ? note.flags : 0);
  }

  /// `compute`, one product after the other.
  __device__ __forceinline__ void compute_in_turn(const Work& work, Accumulator& tOrO,
                                                  RowSoftmax& softmax) {
    using namespace cute;
    Scores tSrS;
    auto tOrP = make_weights();
    set_zero(tOrO);
    ring_q().wait_full(q_state_);
    for (bool last = false; !last;) {
      storage_.ring_k.wait_full(k_state_);
      const auto& note = storage_.notes[k_state_.stage()];
      const std::uint32_t flags = flags_of(note);
      last = flags & kLast;
      multiply_qk(tSrS);
      warpgroup_wait<0>();
      warpgroup_fence_operand(tSrS);
      if (last) release(ring_q(), q_state_);
      if (flags & mine(kMasked)) erase(note, work, tSrS);
      give_back(storage_.ring_k, k_state_);
      if (softmax.next(tSrS)) softmax.rescale(tOrO);
      to_weights(tSrS, tOrP);
      storage_.ring_v.wait_full(k_state_);  // V is in step with K here
      multiply_pv(tOrP, tOrO);
      warpgroup_wait<0>();
      release(storage_.ring_v, k_state_);
    }
  }

  /// The scores of 16 columns, in order, are an A operand of 16 columns.
  __device__ __forceinline__ static auto make_weights() {
    using namespace cute;
    return make_tensor<Element>(make_shape(Shape<_2, _2, _2>{}, _1{}, Int<C::kTileKv / 16>{}));
  }

  /// S of the q tile and the keys at hand.
  __device__ __forceinline__ void multiply_qk(Scores& tSrS) const {
    using namespace cute;
    MmaQK mma;
    auto thread_mma = mma.get_slice(thread_);
    Tensor sQ = local_tile(make_tensor(make_smem_ptr(storage_.q), typename L::Q{}),
                           Shape<_64, Int<C::kHeadDim>>{}, make_coord(group_, _0{}));
    Tensor sK = make_tensor(make_smem_ptr(storage_.k[k_state_.stage()]), typename L::K{});
    multiply<true>(mma, thread_mma.partition_fragment_A(sQ), thread_mma.partition_fragment_B(sK),
                   tSrS);
  }

  /// Adds P V of the keys at hand to O.
  template <class Weights>
  __device__ __forceinline__ void multiply_pv(const Weights& tOrP, Accumulator& tOrO) const {
    using namespace cute;
    MmaPV mma;
    Tensor sV = make_tensor(make_smem_ptr(storage_.v[k_state_.stage()]), typename L::V{});
    multiply<false>(mma, tOrP, mma.get_slice(thread_).partition_fragment_B(sV), tOrO);
  }

  /// `compute`, P V of one tile of keys under the softmax of the next.
  __device__ __forceinline__ void compute_overlapped(const Work& work, Accumulator& tOrO,
                                                     RowSoftmax& softmax) {
    using namespace cute;
    // Made once: multiply_qk and multiply_pv in this loop made a tile of keys 5 % longer.
    MmaQK mma_qk;
    MmaPV mma_pv;
    auto thread_qk = mma_qk.get_slice(thread_);
    auto thread_pv = mma_pv.get_slice(thread_);

    Tensor sQ = local_tile(make_tensor(make_smem_ptr(storage_.q), typename L::Q{}),
                           Shape<_64, Int<C::kHeadDim>>{}, make_coord(group_, _0{}));
    Tensor tSrQ = thread_qk.partition_fragment_A(sQ);
    auto tSrK = [&](int stage) {
      return thread_qk.partition_fragment_B(
          make_tensor(make_smem_ptr(storage_.k[stage]), typename L::K{}));
    };
    auto tOrV = [&](int stage) {
      return thread_pv.partition_fragment_B(
          make_tensor(make_smem_ptr(storage_.v[stage]), typename L::V{}));
    };

    Scores tSrS;
    auto tOrP = make_weights();

    set_zero(tOrO);
    ring_q().wait_full(q_state_);
    // A warpgroup begins behind the others, or is through before them, when they alone see the
    // first tiles, or the last ones.
    std::uint32_t flags = next_flags();
    while (C::kHides && flags & mine(kHidden)) {
      give_tile_back();
      flags = next_flags();
    }
    const std::uint32_t own = C::kLists ? kLast : mine(kEnded);
    const auto& first_note = storage_.notes[k_state_.stage()];
    // Turns the scores into weights and gives back what they were made of. Whether O is to be
    // rescaled.
    const auto take_scores = [&](const Note& note) {
      warpgroup_fence_operand(tSrS);
      if (flags & own) release(ring_q(), q_state_);
      if (flags & mine(kMasked)) erase(note, work, tSrS);
      release(storage_.ring_k, k_state_);
      return softmax.next(tSrS);
    };
    bool unseen = false;  // whether a row of the warp is; kAsksWeights alone wants to know
    // The same, but asks the weights' sums: no instruction for each score. The scores are asked
    // where rows may have seen nothing, whose weights say nothing.
    const auto take_weights = [&](const Note& note) {
      warpgroup_fence_operand(tSrS);
      const std::int32_t* const piece_keys = storage_.piece_keys_of(k_state_);
      if (flags & own) release(ring_q(), q_state_);
      const bool asks_scores = (flags & mine(kMasked)) || unseen;
      bool rescale = false;
      if (asks_scores) {
        if (flags & mine(kMasked)) erase(note, work, tSrS);
        rescale = softmax.ask(tSrS);
        unseen = softmax.any_unseen();
      }
      release(storage_.ring_k, k_state_);
      float sums[2] = {0, 0};
      softmax.template exponentials<true>(tSrS, sums);
      // Not twice in a tile: O is rescaled once.
      if (RowSoftmax::exceed(sums) && !asks_scores) {
        rescale = RowSoftmax::can_move(sums) ? softmax.move_to(tSrS, sums)
                                             : ScoresAgain<Element, C>(params_, work, row())
                                                   .take(piece_keys, softmax, tSrS, sums);
      }
      softmax.add(sums);
      return rescale;
    };
    multiply<true>(mma_qk, tSrQ, tSrK(k_state_.stage()), tSrS);
    leave_out_tile();
    warpgroup_wait<0>();
    take_scores(first_note);
    if constexpr (C::kAsksWeights) unseen = softmax.any_unseen();
    to_weights(tSrS, tOrP);

    const auto finish_step = [&](bool rescale) {
      warpgroup_wait<0>();
      if (rescale) softmax.rescale(tOrO);
      release(storage_.ring_v, v_state_);
      to_weights(tSrS, tOrP);
    };
    if (!(flags & own)) {
      bool rescale;
      while (true) {
        wait_tiles();
        const auto& note = storage_.notes[k_state_.stage()];
        flags = flags_of(note);
        wait_turn();
        // S of this tile and O of the one before are computed while the other warpgroups do
        // softmax; then O goes on under this warpgroup's own softmax.
        multiply<true>(mma_qk, tSrQ, tSrK(k_state_.stage()), tSrS);
        multiply<false>(mma_pv, tOrP, tOrV(v_state_.stage()), tOrO);
        pass_turn();
        warpgroup_wait<1>();
        if constexpr (C::kAsksWeights) {
          rescale = take_weights(note);
        } else {
          rescale = take_scores(note);
        }
        // A branch keeps ptxas from moving the wait for O to before the exponentials: within a
        // block it puts a wait first. It must be one that all warps of a warpgroup take alike, as
        // not all rescale: all have to execute the same waits.
        if (flags & own) break;
        finish_step(rescale);
      }
      finish_step(rescale);
    }
    storage_.ring_v.wait_full(v_state_);
    multiply<false>(mma_pv, tOrP, tOrV(v_state_.stage()), tOrO);
    warpgroup_wait<0>();
    release(storage_.ring_v, v_state_);
    if constexpr (!C::kLists) {
      while (!(flags & kLast)) flags = pass_tile();
    }
  }

  __device__ __forceinline__ Ring<1>& ring_q() const {  // of this warpgroup's rows
    return storage_.ring_q[C::kPartsQ == 1 ? 0 : group_];
  }

  template <bool kZero, class Mma, class A, class B, class D>
  __device__ __forceinline__ static void multiply(Mma& mma, const A& a, const B& b, D& d) {
    using namespace cute;
    warpgroup_fence_operand(d);
    warpgroup_arrive();
    mma.accumulate_ = kZero ? GMMA::ScaleOut::Zero : GMMA::ScaleOut::One;
    CUTE_UNROLL
    for (int step = 0; step < size<2>(a); ++step) {
      cute::gemm(mma, a(_, _, step), b(_, _, step), d);
      mma.accumulate_ = GMMA::ScaleOut::One;
    }
    warpgroup_commit_batch();
  }

  __device__ __forceinline__ void wait_turn() {
    if constexpr (C::kPingPong) {
      cutlass::arch::NamedBarrier::sync(2 * kWarpGroup, turn_of(group_));
    }
  }
  __device__ __forceinline__ void pass_turn() {
    if constexpr (C::kPingPong) {
      const int next = group_ == C::kConsumers - 1 ? 0 : group_ + 1;
      cutlass::arch::NamedBarrier::arrive(2 * kWarpGroup, turn_of(next));
    }
  }
  __device__ __forceinline__ int turn_of(int group) const {
    return kTurn + team_ * C::kConsumers + group;
  }

  /// Of the next tile, once its K is there.
  __device__ __forceinline__ std::uint32_t next_flags() const {
    storage_.ring_k.wait_full(k_state_);
    return flags_of(storage_.notes[k_state_.stage()]);
  }
  /// Gives the next tile back as it came. Returns its flags.
  __device__ __forceinline__ std::uint32_t pass_tile() {
    const std::uint32_t flags = next_flags();
    wait_turn();
    pass_turn();
    give_tile_back();
    return flags;
  }
  __device__ __forceinline__ void give_tile_back() {
    release(storage_.ring_k, k_state_);
    storage_.ring_v.wait_full(v_state_);
    release(storage_.ring_v, v_state_);
  }

  /// Until K of this step and V of the one before are there. Both are asked at once, since even an
  /// answer takes a while.
  __device__ __forceinline__ void wait_tiles() const {
    const bool has_k = storage_.ring_k.is_full(k_state_);
    const bool has_v = storage_.ring_v.is_full(v_state_);
    if (!has_k) storage_.ring_k.wait_full(k_state_);
    if (!has_v) storage_.ring_v.wait_full(v_state_);
  }

  /// Each warp gives a stage back when all its lanes are done with it.
  template <class StageRing, class State>
  __device__ __forceinline__ void give_back(StageRing& ring, const State& state) {
    __syncwarp();
    if (thread_ % 32 == 0) ring.arrive_empty(state);
  }
  template <class StageRing, class State>
  __device__ __forceinline__ void release(StageRing& ring, State& state) {
    give_back(ring, state);
    state.advance();
  }

  template <class P>
  __device__ __forceinline__ static void to_weights(const Scores& tSrS, P& tOrP) {
    cutlass::NumericArrayConverter<Element, float, 2> convert;
    CUTE_UNROLL
    for (int i = 0; i < cute::size(tSrS); i += 2) {
      const auto pair = convert({tSrS(i), tSrS(i + 1)});
      tOrP(i) = pair[0];
      tOrP(i + 1) = pair[1];
    }
  }

  const Params& params_;
  Storage<Element, C>& storage_;
  int group_;
  int team_;
  int thread_;
  RingState<C::kStagesK> k_state_;
  RingState<C::kStages> v_state_;
  RingState<1> q_state_;
  RingState<2> work_state_;
  bool owes_stage_ = false;
};

}  // namespace sparsek::attn::sm90
