#pragma once

#include "attention/wmma/notes.cuh"
#include "attention/wmma/work.cuh"

namespace sparsek::attn::wmma {

/// The shared memory of a CTA. Rows of head_dim elements, their 16-byte units swizzled.
template <class C>
struct Storage {
  alignas(128) unsigned char q[C::kQBytes];
  alignas(128) unsigned char k[C::kStages][C::kTileBytes];
  alignas(128) unsigned char v[C::kStages][C::kTileBytes];
  Notes<C> notes;
  // What all threads need now and then: registers are scarce.
  const char* k_rows;  // of the CTA's batch and head
  const char* v_rows;
  Work work;
};

}  // namespace sparsek::attn::wmma
