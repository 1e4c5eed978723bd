// The link's rate now, from the bytes that came.
#pragma once

#include <cstdint>
#include <deque>

namespace sparkv {

class LinkEstimate {
 public:
  // `prior` bytes/s is believed until something else was seen; 0: nothing is known.
  explicit LinkEstimate(double prior) : prior_(prior) {}

  // The stream has something to bring from now on, or has nothing more: times without are not the
  // link's fault.
  void SetBusy(double now_s, bool busy);
  // `bytes` came so far, unfinished items included.
  void OnBytes(double now_s, uint64_t bytes);
  // Bytes/s, >= 0; falls while less comes than came, to 0 after a second of silence.
  double BytesPerSecond(double now_s) const;
  // Seconds of waiting since the last byte; 0 when nothing is awaited.
  double SilentSeconds(double now_s) const;

 private:
  struct Sample {
    double busy_s;  // of the link, so far
    uint64_t bytes;
  };
  double BusySeconds(double now_s) const { return busy_s_ + (busy_ ? now_s - since_s_ : 0); }

  const double prior_;
  bool busy_ = false;
  double busy_s_ = 0;   // until since_s_
  double since_s_ = 0;
  std::deque<Sample> samples_;  // whenever bytes had grown
};

}  // namespace sparkv
