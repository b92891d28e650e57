// NCCL backend: connects GPUs. A separate library (libsome_nccl.so), loaded by comm/group_open.cc in addition to the
// backend that connects the ranks. NCCL only transports data; comm/group_tensors.cc decides what is summed and in which
// order, because the results of NCCL's all-reduce depend on the number of ranks and the machine.
#include <nccl.h>

#include <cstring>

#include "comm/link.h"

namespace some {
namespace {

std::string reason_of(ncclResult_t result, ncclComm_t comm) {
  std::string text = ncclGetErrorString(result);
  if (const char* const more = ncclGetLastError(comm); more != nullptr && *more != 0) text += std::string(": ") + more;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return "NCCL: " + text;
}

class NcclLink : public GpuLink {
 public:
  explicit NcclLink(ncclComm_t comm) : comm_(comm) {}
  ~NcclLink() override {
    ncclCommFinalize(comm_);
    ncclCommDestroy(comm_);
  }
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  std::string exchange(void* stream, std::span<const Link::Message> sends,
                       std::span<const Link::Message> receives) override {
    const auto on = static_cast<cudaStream_t>(stream);
    ncclResult_t result = ncclGroupStart();
    for (const Link::Message& one : sends) {
      if (result == ncclSuccess && one.bytes > 0)
        result = ncclSend(one.data, one.bytes, ncclUint8, one.peer, comm_, on);
    }
    for (const Link::Message& one : receives) {
      if (result == ncclSuccess && one.bytes > 0)
        result = ncclRecv(one.data, one.bytes, ncclUint8, one.peer, comm_, on);
    }
    const ncclResult_t ended = ncclGroupEnd();
    if (result == ncclSuccess) result = ended;
    if (result == ncclSuccess) ncclCommGetAsyncError(comm_, &result);
    return result == ncclSuccess ? std::string() : reason_of(result, comm_);
  }

 private:
  ncclComm_t comm_;
};

}  // namespace

extern "C" std::string some_make_gpu_id(std::string& problem) {
  ncclUniqueId id;
  if (const ncclResult_t result = ncclGetUniqueId(&id); result != ncclSuccess) {
    problem = reason_of(result, nullptr);
    return {};
  }
  return {id.internal, sizeof id.internal};
}

extern "C" GpuLink* some_open_gpu_link(int rank, int size, const std::string& text, std::string& problem) {
  ncclUniqueId id;
  if (text.size() != sizeof id.internal) {
    problem = "NCCL: rank 0 sent an id of another length";
    return nullptr;
  }
  std::memcpy(id.internal, text.data(), sizeof id.internal);
  ncclComm_t comm = nullptr;
  if (const ncclResult_t result = ncclCommInitRank(&comm, size, id, rank); result != ncclSuccess) {
    problem = reason_of(result, nullptr);
    return nullptr;
  }
  return new NcclLink(comm);
}

}  // namespace some
