#include "parallel/group.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include <ATen/ATen.h>

#include "base/error.h"
#include "parallel/backend.h"

namespace switchyard {
namespace {

using Clock = std::chrono::steady_clock;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int64_t sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

int64_t bytes_of(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

std::vector<int64_t> shard_sizes(int64_t full, int64_t parts) {
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < parts; ++i) {
    sizes.push_back(shard_range(full, parts, i).size());
  }
  return sizes;
}

WorkPtr all_to_all_single(c10d::Backend& backend, at::Tensor& received, at::Tensor& rows,
                          std::vector<int64_t> receive_counts, std::vector<int64_t> send_counts) {
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 15
  return backend.all_to_all_single(received, rows, receive_counts, send_counts);
#else
  return backend.alltoall_base(received, rows, receive_counts, send_counts);
#endif
}

}  // namespace

PendingCollective::~PendingCollective() {
  if (finish_) {
    try {
      finish_();
    } catch (...) {  // already unwinding, or nobody cared: the peer's loss shows at the next call
    }
  }
}

void PendingCollective::wait() {
  if (finish_) {
    const auto finish = std::move(finish_);
    finish_ = nullptr;
    finish();
  }
}

Group::Group(std::string name, int64_t rank, int64_t size, std::shared_ptr<Backend> backend,
             std::string whoami, Ledger& ledger)
    : name_(std::move(name)),
      rank_(rank),
      size_(size),
      backend_(std::move(backend)),
      whoami_(std::move(whoami)),
      ledger_(ledger) {}

bool Group::communicates(const Site& site) const { return size_ > 1 && !ledger_.is_removed(site); }

// `work` is a WorkPtr*; taken as void* so that the header stays free of c10d.
PendingCollective Group::pending(void* work, const Site& site, std::string_view collective,
                                 int64_t bytes) const {
  const auto start = Clock::now();
  return PendingCollective(
      [this, held = *static_cast<WorkPtr*>(work), site, collective, bytes, start] {
        try {
          held->wait(backend_->timeout);
        } catch (const std::exception& error) {
          throw CommError(fmt::format(
              "[{}] {} \"{}\" over group {} of {} ranks failed: a peer died, hung or made another "
              "call (timeout {} s). See the other ranks' output. ({})",
              whoami_, collective, site.name, name_, size_,
              std::chrono::duration<double>(backend_->timeout).count(),
              std::string_view(error.what()).substr(0, std::string_view(error.what()).find('\n'))));
        }
        ledger_.record(site, collective, name_, bytes, seconds_since(start));
      });
}

PendingCollective Group::start_all_reduce(at::Tensor values, const Site& site, ReduceOp op) const {
  if (!communicates(site)) {
    return {};
  }
  check<ShapeError>(values.is_contiguous(), "{} must be contiguous to be reduced in place",
                    site.name);
  c10d::AllreduceOptions options;
  options.reduceOp = op == ReduceOp::kSum ? c10d::ReduceOp::SUM : c10d::ReduceOp::MAX;
  std::vector<at::Tensor> tensors{values};
  WorkPtr work = backend_->c10d->allreduce(tensors, options);
  return pending(&work, site, "all_reduce", 2 * bytes_of(values) * (size_ - 1) / size_);
}

void Group::all_reduce(at::Tensor values, const Site& site, ReduceOp op) const {
  start_all_reduce(std::move(values), site, op).wait();
}

at::Tensor Group::all_gather_rows(const at::Tensor& rows, const std::vector<int64_t>& counts,
                                  const Site& site) const {
  if (size_ == 1) {
    return rows;
  }
  check<ShapeError>(rows.size(0) == counts[static_cast<size_t>(rank_)],
                    "{}: this rank has {} rows, {} were declared", site.name, rows.size(0),
                    counts[static_cast<size_t>(rank_)]);
  auto sizes = rows.sizes().vec();
  sizes[0] = sum(counts);
  if (!communicates(site)) {
    sizes[0] -= rows.size(0);
    return at::cat({rows, at::zeros(sizes, rows.options())});
  }
  at::Tensor received = at::empty(sizes, rows.options());
  at::Tensor sent = rows.contiguous();
  WorkPtr work;
  if (std::all_of(counts.begin(), counts.end(), [&](int64_t n) { return n == counts[0]; })) {
    std::vector<std::vector<at::Tensor>> outputs{received.split(counts[0])};
    std::vector<at::Tensor> inputs{sent};
    work = backend_->c10d->allgather(outputs, inputs);
  } else {
    // Unequal shares through all-to-all: every rank sends all of its rows to everyone.
    sent = at::cat(std::vector<at::Tensor>(static_cast<size_t>(size_), sent));
    work = all_to_all_single(*backend_->c10d, received, sent, counts,
                             std::vector<int64_t>(static_cast<size_t>(size_), rows.size(0)));
  }
  pending(&work, site, "all_gather", bytes_of(rows) * (size_ - 1)).wait();
  return received;
}

at::Tensor Group::reduce_scatter_rows(const at::Tensor& rows, const std::vector<int64_t>& counts,
                                      const Site& site) const {
  if (size_ == 1) {
    return rows;
  }
  const int64_t own = counts[static_cast<size_t>(rank_)];
  if (!communicates(site)) {
    const int64_t before =
        std::accumulate(counts.begin(), counts.begin() + rank_, int64_t{0});
    return rows.narrow(0, before, own).contiguous();
  }
  auto sizes = rows.sizes().vec();
  sizes[0] = own * size_;
  at::Tensor received = at::empty(sizes, rows.options());
  at::Tensor sent = rows.contiguous();
  WorkPtr work = all_to_all_single(*backend_->c10d, received, sent,
                                   std::vector<int64_t>(static_cast<size_t>(size_), own), counts);
  const int64_t row_bytes = rows.size(0) == 0 ? 0 : bytes_of(rows) / rows.size(0);
  pending(&work, site, "reduce_scatter", row_bytes * (sum(counts) - own)).wait();
  // Summed in the wider of fp32 and the values' dtype, from rank 0 upwards.
  const auto wide = rows.scalar_type() == at::kBFloat16 ? at::kFloat : rows.scalar_type();
  at::Tensor total = received.narrow(0, 0, own).to(wide, /*non_blocking=*/false, /*copy=*/true);
  for (int64_t peer = 1; peer < size_; ++peer) {
    total.add_(received.narrow(0, peer * own, own));
  }
  return total.to(rows.scalar_type());
}

at::Tensor Group::all_gather(const at::Tensor& local, int64_t dim, int64_t full,
                             const Site& site) const {
  if (size_ == 1) {
    return local;
  }
  const auto front = local.movedim(dim, 0).contiguous();
  return all_gather_rows(front, shard_sizes(full, size_), site).movedim(0, dim).contiguous();
}

at::Tensor Group::reduce_scatter(const at::Tensor& values, int64_t dim, const Site& site) const {
  if (size_ == 1) {
    return values;
  }
  const auto front = values.movedim(dim, 0).contiguous();
  return reduce_scatter_rows(front, shard_sizes(front.size(0), size_), site)
      .movedim(0, dim)
      .contiguous();
}

at::Tensor Group::all_to_all(const at::Tensor& rows, const std::vector<int64_t>& send_counts,
                             const std::vector<int64_t>& receive_counts, const Site& site) const {
  check<ShapeError>(rows.size(0) == sum(send_counts), "{}: {} rows to send, counts add up to {}",
                    site.name, rows.size(0), sum(send_counts));
  if (size_ == 1) {
    return rows;
  }
  auto sizes = rows.sizes().vec();
  sizes[0] = sum(receive_counts);
  if (!communicates(site)) {
    // Keeps what this rank sends to itself in place; rows of peers read as zero.
    at::Tensor received = at::zeros(sizes, rows.options());
    const auto offset = [&](const std::vector<int64_t>& counts) {
      return std::accumulate(counts.begin(), counts.begin() + rank_, int64_t{0});
    };
    const int64_t own = send_counts[static_cast<size_t>(rank_)];
    received.narrow(0, offset(receive_counts), own)
        .copy_(rows.narrow(0, offset(send_counts), own));
    return received;
  }
  at::Tensor received = at::empty(sizes, rows.options());
  at::Tensor sent = rows.contiguous();
  WorkPtr work = all_to_all_single(*backend_->c10d, received, sent, receive_counts, send_counts);
  const int64_t row_bytes = rows.size(0) == 0 ? 0 : bytes_of(rows) / rows.size(0);
  pending(&work, site, "all_to_all",
          row_bytes * (rows.size(0) - send_counts[static_cast<size_t>(rank_)]))
      .wait();
  return received;
}

std::vector<std::vector<int64_t>> Group::all_gather_counts(const std::vector<int64_t>& counts,
                                                           const Site& site) const {
  if (size_ == 1) {
    return {counts};
  }
  const auto length = static_cast<int64_t>(counts.size());
  const at::Tensor local = at::tensor(counts, at::kLong).view({1, length});
  const at::Tensor all =
      all_gather_rows(local, std::vector<int64_t>(static_cast<size_t>(size_), 1), site);
  std::vector<std::vector<int64_t>> result;
  for (int64_t peer = 0; peer < size_; ++peer) {
    const auto* row = all.const_data_ptr<int64_t>() + peer * length;
    result.emplace_back(row, row + length);
  }
  return result;
}

std::vector<std::string> Group::all_gather_text(const std::string& text, const Site& site) const {
  if (size_ == 1) {
    return {text};
  }
  std::vector<int64_t> lengths;
  for (const auto& one : all_gather_counts({static_cast<int64_t>(text.size())}, site)) {
    lengths.push_back(one[0]);
  }
  at::Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  const at::Tensor all = all_gather_rows(bytes, lengths, site);
  std::vector<std::string> texts;
  const auto* next = static_cast<const char*>(all.const_data_ptr());
  for (const int64_t length : lengths) {
    texts.emplace_back(next, static_cast<size_t>(length));
    next += length;
  }
  return texts;
}

void Group::broadcast(at::Tensor values, int64_t root, const Site& site) const {
  if (!communicates(site)) {
    return;
  }
  check<ShapeError>(values.is_contiguous(), "{} must be contiguous to be broadcast in place",
                    site.name);
  c10d::BroadcastOptions options;
  options.rootRank = root;
  std::vector<at::Tensor> tensors{values};
  WorkPtr work = backend_->c10d->broadcast(tensors, options);
  pending(&work, site, "broadcast", rank_ == root ? bytes_of(values) * (size_ - 1) : 0).wait();
}

void Group::barrier(const Site& site) const {
  if (!communicates(site)) {
    return;
  }
  WorkPtr work = backend_->c10d->barrier();
  pending(&work, site, "barrier", 0).wait();
}

}  // namespace switchyard
