#include "parallel/group.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/ranges.h>

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"

namespace switchyard {
namespace {

using Parts = Call::Parts;

// Up to here an all-reduce sends everything to everyone, in one step instead of two.
constexpr int64_t kDirectBytes = 64 << 10;
// Larger sums are taken in chunks, so that what is received lies in the cache when it is added.
constexpr int64_t kChunkBytes = 512 << 10;

int64_t sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

// What `tensor` holds for each member when cut along `dim` by `sizes`. Views.
Parts cut(const at::Tensor& tensor, int64_t dim, const std::vector<int64_t>& sizes) {
  return tensor.split_with_sizes(sizes, dim);
}

std::vector<int64_t> with_size(const at::Tensor& tensor, int64_t dim, int64_t size) {
  auto sizes = tensor.sizes().vec();
  sizes[static_cast<size_t>(dim)] = size;
  return sizes;
}

CallContent content_of(const at::Tensor& flat, ReduceOp op) {
  return {.dtype = flat.scalar_type(),
          .sizes = flat.sizes().vec(),
          .detail = op == ReduceOp::kSum ? "sum" : "maximum"};
}

// Of a tensor that is, or will be, cut along `dim` by `sizes`.
CallContent content_of(const at::Tensor& tensor, int64_t dim, const std::vector<int64_t>& sizes) {
  return {.dtype = tensor.scalar_type(),
          .sizes = with_size(tensor, dim, sum(sizes)),
          .detail = fmt::format("dim {} by {}", dim, fmt::join(sizes, " "))};
}

void refuse_gradient(const at::Tensor& tensor, const Site& site) {
  check<ShapeError>(!(tensor.requires_grad() && at::GradMode::is_enabled()),
                    "{}: a plain collective would lose the gradient of its input: take a "
                    "differentiable one (parallel/collectives.h), or detach it",
                    site.name);
}

void check_in_place(const at::Tensor& values, const Site& site, std::string_view collective) {
  refuse_gradient(values, site);
  check<ShapeError>(values.is_contiguous(), "{}: a tensor must be contiguous for {} in place",
                    site.name, collective);
}

void check_counts(const std::vector<int64_t>& counts, int64_t size, const Site& site) {
  check<ShapeError>(
      static_cast<int64_t>(counts.size()) == size &&
          std::all_of(counts.begin(), counts.end(), [](int64_t count) { return count >= 0; }),
      "{}: one count from 0 up is expected for each of {} ranks", site.name, size);
}

// Sums pieces[i] of all members into member i's `out`, chunk by chunk: while one is added, the next
// travels. The number of chunks is the same on all members.
class ScatteredSum {
 public:
  // The pieces are flat and contiguous, out is as long as pieces[own] and may be it.
  ScatteredSum(const Parts& pieces, const at::Tensor& out, size_t own, ReduceOp op)
      : pieces_(pieces), out_(out), own_(own), op_(op), chunk_(kChunkBytes / out.element_size()) {
    for (const at::Tensor& piece : pieces) {
      num_chunks_ = std::max(num_chunks_, (piece.numel() + chunk_ - 1) / chunk_);
    }
  }

  int64_t num_chunks() const { return num_chunks_; }

  void run(Call& call) {
    const auto num_pieces = static_cast<int64_t>(pieces_.size());
    for (at::Tensor& scratch : scratch_) {
      scratch = at::empty({num_pieces, std::min(chunk_, out_.numel())}, out_.options());
    }
    auto exchange = num_chunks_ > 0 ? start(call, 0) : nullptr;
    for (int64_t i = 0; i < num_chunks_; ++i) {
      auto next = i + 1 < num_chunks_ ? start(call, i + 1) : nullptr;
      call.wait(*exchange);
      reduce_pieces(received(i), part(out_, i), op_);
      exchange = std::move(next);
    }
  }

 private:
  at::Tensor part(const at::Tensor& piece, int64_t i) const {
    const int64_t begin = std::min(i * chunk_, piece.numel());
    return piece.narrow(0, begin, std::min(chunk_, piece.numel() - begin));
  }

  // Chunk i as every member sent it; this rank's own lies in its piece.
  Parts received(int64_t i) const {
    const at::Tensor own = part(pieces_[own_], i);
    Parts parts;
    for (size_t member = 0; member < pieces_.size(); ++member) {
      const at::Tensor& scratch = scratch_[i % 2];
      parts.push_back(
          member == own_
              ? own
              : scratch.select(0, static_cast<int64_t>(member)).narrow(0, 0, own.numel()));
    }
    return parts;
  }

  std::unique_ptr<Call::Exchange> start(Call& call, int64_t i) const {
    Parts sends;
    for (const at::Tensor& piece : pieces_) {
      sends.push_back(part(piece, i));
    }
    return call.start(sends, received(i));
  }

  Parts pieces_;
  at::Tensor out_;
  size_t own_;
  ReduceOp op_;
  int64_t chunk_;
  int64_t num_chunks_ = 0;
  at::Tensor scratch_[2];
};

}  // namespace

PendingCollective::PendingCollective(PendingCollective&& other) noexcept
    : finish_(std::exchange(other.finish_, nullptr)) {}

PendingCollective& PendingCollective::operator=(PendingCollective&& other) noexcept {
  wait_and_forget();
  finish_ = std::exchange(other.finish_, nullptr);
  return *this;
}

PendingCollective::~PendingCollective() {
  wait_and_forget();
}

void PendingCollective::wait() {
  if (const auto finish = std::exchange(finish_, nullptr)) {
    finish();
  }
}

void PendingCollective::wait_and_forget() noexcept {
  try {
    wait();
  } catch (...) {  // already unwinding, or nobody cared: a lost peer shows at the next call
  }
}

Group::Group(GroupMembers members, std::shared_ptr<Transport> transport, Ledger& ledger,
             bool verify_calls)
    : members_(std::move(members)),
      transport_(std::move(transport)),
      ledger_(ledger),
      verify_calls_(verify_calls),
      num_sent_(members_.ranks.size(), 0),
      num_received_(members_.ranks.size(), 0) {}

bool Group::communicates(const Site& site) const {
  return size() > 1 && !ledger_.is_removed(site);
}

std::shared_ptr<Call> Group::begin(std::string_view collective, const Site& site,
                                   int64_t num_exchanges, const CallContent& content) const {
  ledger_.before_call(site, collective);
  const uint32_t first = next_exchange_;
  next_exchange_ += static_cast<uint32_t>(num_exchanges);
  auto call = std::make_shared<Call>(members_, *transport_, ledger_, collective, site,
                                     Call::FirstExchange{.number = first});
  if (verify_calls_) {
    next_exchange_ += static_cast<uint32_t>(Call::kVerifyExchanges);
    call->verify(content);
  }
  return call;
}

std::vector<int64_t> Group::shard_sizes(int64_t full) const {
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < size(); ++i) {
    sizes.push_back(shard_range(full, size(), i).size());
  }
  return sizes;
}

PendingCollective Group::start_all_reduce(at::Tensor values, const Site& site, ReduceOp op) const {
  return reduce(values, site, op, Goes::kInBackground);
}

void Group::all_reduce(at::Tensor values, const Site& site, ReduceOp op) const {
  reduce(values, site, op, Goes::kNow).wait();
}

PendingCollective Group::reduce(const at::Tensor& values, const Site& site, ReduceOp op,
                                Goes goes) const {
  check_in_place(values, site, "all_reduce");
  if (!communicates(site)) {
    return {};
  }
  const at::Tensor flat = values.detach().view({-1});
  const auto bytes = static_cast<int64_t>(flat.nbytes());
  return bytes * (size() - 1) <= kDirectBytes ? reduce_directly(flat, site, op)
                                              : reduce_in_two_steps(flat, site, op, goes);
}

PendingCollective Group::reduce_directly(const at::Tensor& flat, const Site& site,
                                         ReduceOp op) const {
  const auto call = begin("all_reduce", site, 1, content_of(flat, op));
  Parts received = at::empty({size(), flat.numel()}, flat.options()).unbind();
  received[own()] = flat;
  std::shared_ptr<Call::Exchange> exchange;
  call->timed([&] { exchange = call->start(Parts(received.size(), flat), received); });
  return PendingCollective([=] {
    call->timed([&] {
      call->wait(*exchange);
      reduce_pieces(received, flat, op);
    });
    call->record();
  });
}

PendingCollective Group::perform(const std::shared_ptr<Call>& call,
                                 const std::function<void()>& work, Goes goes) {
  if (goes == Goes::kInBackground) {
    call->start_in_background(work);
  }
  return PendingCollective([=] {
    if (goes == Goes::kInBackground) {
      call->finish_in_background();
    } else {
      call->timed(work);
    }
    call->record();
  });
}

PendingCollective Group::reduce_in_two_steps(const at::Tensor& flat, const Site& site, ReduceOp op,
                                             Goes goes) const {
  const Parts pieces = cut(flat, 0, shard_sizes(flat.numel()));
  const auto sums = std::make_shared<ScatteredSum>(pieces, pieces[own()], own(), op);
  const auto call = begin("all_reduce", site, sums->num_chunks() + 1, content_of(flat, op));
  const auto work = [=, &call = *call, own = own()] {
    sums->run(call);
    call.run(Parts(pieces.size(), pieces[own]), pieces);
  };
  return perform(call, work, goes);
}

at::Tensor Group::gather(const at::Tensor& local, int64_t dim, const std::vector<int64_t>& sizes,
                         const Site& site) const {
  refuse_gradient(local, site);
  check<ShapeError>(local.size(dim) == sizes[own()],
                    "{}: this rank has {} of dim {}, {} were declared", site.name, local.size(dim),
                    dim, sizes[own()]);
  if (size() == 1) {
    return local;
  }
  if (!communicates(site)) {
    const int64_t missing = sum(sizes) - sizes[own()];
    return at::cat({local, at::zeros(with_size(local, dim, missing), local.options())}, dim);
  }
  // Along dim 0 the parts lie end to end in the result; along another they are put together after.
  const bool in_place = dim == 0;
  at::Tensor result;
  Parts parts;
  if (in_place) {
    result = at::empty(with_size(local, 0, sum(sizes)), local.options());
    parts = cut(result, 0, sizes);
    parts[own()].copy_(local);
  } else {
    for (const int64_t part_size : sizes) {
      parts.push_back(at::empty(with_size(local, dim, part_size), local.options()));
    }
    parts[own()] = local.contiguous();
  }
  const auto call = begin("all_gather", site, 1, content_of(local, dim, sizes));
  call->timed([&] { call->run(Parts(parts.size(), parts[own()]), parts); });
  call->record();
  return in_place ? result : at::cat(parts, dim);
}

PendingRows Group::sum_and_cut(const at::Tensor& values, int64_t dim,
                               const std::vector<int64_t>& sizes, const Site& site,
                               Goes goes) const {
  refuse_gradient(values, site);
  check<ShapeError>(values.size(dim) == sum(sizes),
                    "{}: {} of dim {} to share, counts add up to {}", site.name, values.size(dim),
                    dim, sum(sizes));
  if (size() == 1) {
    return {values};
  }
  Parts pieces = cut(values, dim, sizes);
  if (!communicates(site)) {
    return {pieces[own()].contiguous()};
  }
  at::Tensor result = at::empty(with_size(values, dim, sizes[own()]), values.options());
  for (at::Tensor& piece : pieces) {
    piece = piece.contiguous().view({-1});
  }
  const auto sums =
      std::make_shared<ScatteredSum>(pieces, result.view({-1}), own(), ReduceOp::kSum);
  const auto call =
      begin("reduce_scatter", site, sums->num_chunks(), content_of(values, dim, sizes));
  return {std::move(result), perform(
                                 call, [=, &call = *call] { sums->run(call); }, goes)};
}

at::Tensor Group::all_gather(const at::Tensor& local, int64_t dim, int64_t full,
                             const Site& site) const {
  return gather(local, at::maybe_wrap_dim(dim, local.dim()), shard_sizes(full), site);
}

PendingRows Group::start_all_gather_rows(const at::Tensor& rows, const std::vector<int64_t>& counts,
                                         const Site& site) const {
  check_counts(counts, size(), site);
  if (size() == 1) {
    return {rows};
  }
  const at::Tensor result = at::empty(with_size(rows, 0, sum(counts)), rows.options());
  PendingCollective pending = start_all_gather_rows(rows, counts, result, site);
  return {result, std::move(pending)};
}

at::Tensor Group::all_gather_rows(const at::Tensor& rows, const std::vector<int64_t>& counts,
                                  const Site& site) const {
  check_counts(counts, size(), site);
  return gather(rows, 0, counts, site);
}

PendingCollective Group::start_all_gather_rows(const at::Tensor& rows,
                                               const std::vector<int64_t>& counts,
                                               at::Tensor result, const Site& site) const {
  check_counts(counts, size(), site);
  refuse_gradient(rows, site);
  check_in_place(result, site, "all_gather");
  check<ShapeError>(rows.size(0) == counts[own()] && result.size(0) == sum(counts),
                    "{}: this rank gathers {} rows into {}, {} into {} were declared", site.name,
                    rows.size(0), result.size(0), counts[own()], sum(counts));
  const Parts parts = cut(result, 0, counts);
  parts[own()].copy_(rows);
  if (!communicates(site)) {
    for (size_t member = 0; member < parts.size(); ++member) {
      if (member != own()) {
        at::Tensor(parts[member]).zero_();
      }
    }
    return {};
  }
  const auto call = begin("all_gather", site, 1, content_of(rows, 0, counts));
  const auto work = [=, &call = *call, own = own()] {
    call.run(Parts(parts.size(), parts[own]), parts);
  };
  return perform(call, work, Goes::kInBackground);
}

at::Tensor Group::reduce_scatter(const at::Tensor& values, int64_t dim, const Site& site) const {
  const int64_t wrapped = at::maybe_wrap_dim(dim, values.dim());
  return sum_and_cut(values, wrapped, shard_sizes(values.size(wrapped)), site, Goes::kNow).wait();
}

PendingRows Group::start_reduce_scatter_rows(const at::Tensor& rows,
                                             const std::vector<int64_t>& counts,
                                             const Site& site) const {
  check_counts(counts, size(), site);
  return sum_and_cut(rows, 0, counts, site, Goes::kInBackground);
}

at::Tensor Group::reduce_scatter_rows(const at::Tensor& rows, const std::vector<int64_t>& counts,
                                      const Site& site) const {
  check_counts(counts, size(), site);
  return sum_and_cut(rows, 0, counts, site, Goes::kNow).wait();
}

PendingRows Group::start_all_to_all(const at::Tensor& rows, const std::vector<int64_t>& send_counts,
                                    const std::vector<int64_t>& receive_counts,
                                    const Site& site) const {
  return exchange(rows, send_counts, receive_counts, site, Goes::kInBackground);
}

at::Tensor Group::all_to_all(const at::Tensor& rows, const std::vector<int64_t>& send_counts,
                             const std::vector<int64_t>& receive_counts, const Site& site) const {
  return exchange(rows, send_counts, receive_counts, site, Goes::kNow).wait();
}

PendingRows Group::exchange(const at::Tensor& rows, const std::vector<int64_t>& send_counts,
                            const std::vector<int64_t>& receive_counts, const Site& site,
                            Goes goes) const {
  refuse_gradient(rows, site);
  check_counts(send_counts, size(), site);
  check_counts(receive_counts, size(), site);
  check<ShapeError>(rows.size(0) == sum(send_counts), "{}: {} rows to send, counts add up to {}",
                    site.name, rows.size(0), sum(send_counts));
  check<ShapeError>(send_counts[own()] == receive_counts[own()],
                    "{}: this rank sends itself {} rows and expects {}", site.name,
                    send_counts[own()], receive_counts[own()]);
  if (size() == 1) {
    return {rows};
  }
  const bool is_removed = !communicates(site);
  const auto sizes = with_size(rows, 0, sum(receive_counts));
  at::Tensor received =
      is_removed ? at::zeros(sizes, rows.options()) : at::empty(sizes, rows.options());
  const Parts sends = cut(rows.contiguous(), 0, send_counts);
  const Parts receives = cut(received, 0, receive_counts);
  receives[own()].copy_(sends[own()]);
  if (is_removed) {
    return {std::move(received)};
  }
  const auto call = begin("all_to_all", site, 1,
                          {.dtype = rows.scalar_type(),
                           .sizes = with_size(rows, 0, -1),
                           .detail = {},
                           .sends = send_counts,
                           .receives = receive_counts});
  return {std::move(received), perform(
                                   call, [=, &call = *call] { call.run(sends, receives); }, goes)};
}

PendingCollective Group::start_shift(const at::Tensor& rows, at::Tensor received,
                                     const Site& site) const {
  check_in_place(rows, site, "shift");
  check_in_place(received, site, "shift");
  if (size() == 1) {
    received.copy_(rows);
    return {};
  }
  if (!communicates(site)) {
    received.zero_();
    return {};
  }
  Parts sends(members_.ranks.size());
  Parts receives(members_.ranks.size());
  const auto after = [&](int64_t steps) { return static_cast<size_t>((rank() + steps) % size()); };
  sends[after(1)] = rows;
  receives[after(size() - 1)] = received;
  std::vector<int64_t> send_counts(members_.ranks.size());
  std::vector<int64_t> receive_counts(members_.ranks.size());
  send_counts[after(1)] = rows.size(0);
  receive_counts[after(size() - 1)] = received.size(0);
  const auto call = begin("shift", site, 1,
                          {.dtype = rows.scalar_type(),
                           .sizes = with_size(rows, 0, -1),
                           .detail = {},
                           .sends = send_counts,
                           .receives = receive_counts});
  std::shared_ptr<Call::Exchange> exchange;
  call->timed([&] { exchange = call->start(sends, receives); });
  return PendingCollective([=] {
    call->timed([&] { call->wait(*exchange); });
    call->record();
  });
}

std::vector<std::vector<int64_t>> Group::all_gather_counts(const std::vector<int64_t>& counts,
                                                           const Site& site) const {
  const at::Tensor local = at::tensor(counts, at::kLong).unsqueeze(0);
  const at::Tensor all =
      all_gather_rows(local, std::vector<int64_t>(static_cast<size_t>(size()), 1), site);
  std::vector<std::vector<int64_t>> result;
  for (int64_t member = 0; member < size(); ++member) {
    const auto* row = all.const_data_ptr<int64_t>() + member * local.numel();
    result.emplace_back(row, row + local.numel());
  }
  return result;
}

std::vector<std::string> Group::all_gather_text(const std::string& text, const Site& site) const {
  std::vector<int64_t> lengths;
  for (const auto& length : all_gather_counts({static_cast<int64_t>(text.size())}, site)) {
    lengths.push_back(length[0]);
  }
  at::Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::copy(text.begin(), text.end(), static_cast<char*>(bytes.mutable_data_ptr()));
  const at::Tensor all = all_gather_rows(bytes, lengths, site);
  std::vector<std::string> texts;
  const auto* next = static_cast<const char*>(all.const_data_ptr());
  for (const int64_t length : lengths) {
    texts.emplace_back(next, static_cast<size_t>(length));
    next += length;
  }
  return texts;
}

PendingCollective Group::start_send(const at::Tensor& values, int64_t to, const Site& site) const {
  return start_transfer(values, to, /*is_send=*/true, site);
}

PendingCollective Group::start_receive(at::Tensor values, int64_t from, const Site& site) const {
  return start_transfer(values, from, /*is_send=*/false, site);
}

PendingCollective Group::start_transfer(const at::Tensor& values, int64_t other, bool is_send,
                                        const Site& site) const {
  check_in_place(values, site, "a transfer");
  check<ShapeError>(other >= 0 && other < size() && other != rank(),
                    "{}: rank {} of a group of {} has no other rank {}", site.name, rank(), size(),
                    other);
  if (!communicates(site)) {
    if (!is_send) {
      at::Tensor(values).zero_();
    }
    return {};
  }
  const auto index = static_cast<size_t>(other);
  ledger_.before_call(site, "transfer");
  uint32_t& number = is_send ? num_sent_[index] : num_received_[index];
  const auto call =
      std::make_shared<Call>(members_, *transport_, ledger_, "transfer", site,
                             Call::FirstExchange{.number = number, .is_transfer = true});
  number += static_cast<uint32_t>(verify_calls_ ? 1 + Call::kTransferExchanges : 1);
  std::optional<Call::Comparison> comparison;
  if (verify_calls_) {
    comparison = call->start_comparing(
        index, is_send, {.dtype = values.scalar_type(), .sizes = values.sizes().vec()});
  }
  Parts parts(members_.ranks.size());
  parts[index] = values;
  const Parts none(members_.ranks.size());
  std::shared_ptr<Call::Exchange> exchange;
  call->timed([&] { exchange = is_send ? call->start(parts, none) : call->start(none, parts); });
  return PendingCollective([call, exchange, comparison] {
    call->timed([&] {
      if (comparison) {
        call->compare(*comparison);
      }
      call->wait(*exchange);
    });
    call->record();
  });
}

void Group::broadcast(at::Tensor values, int64_t root, const Site& site) const {
  check_in_place(values, site, "broadcast");
  check<ShapeError>(root >= 0 && root < size(), "{}: there is no rank {} in a group of {}",
                    site.name, root, size());
  if (!communicates(site)) {
    return;
  }
  Parts receives(members_.ranks.size());
  receives[static_cast<size_t>(root)] = values;
  const auto call = begin("broadcast", site, 1,
                          {.dtype = values.scalar_type(),
                           .sizes = values.sizes().vec(),
                           .detail = fmt::format("from {}", root)});
  call->timed([&] {
    rank() == root ? call->run(Parts(receives.size(), values), Parts(receives.size()))
                   : call->run(Parts(receives.size()), receives);
  });
  call->record();
}

void Group::barrier(const Site& site) const {
  if (!communicates(site)) {
    return;
  }
  const auto call = begin("barrier", site, 1, {});
  const at::Tensor sent = at::zeros({1}, at::kByte);
  const Parts received = at::empty({size()}, at::kByte).split(1);
  call->timed([&] { call->run(Parts(received.size(), sent), received); });
  call->record();
}

}  // namespace switchyard
