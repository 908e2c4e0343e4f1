/* What recording a call stores, as LTTng-UST tracepoints: one at entry, one at return. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER hrr_bench
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./hrr_bench_tp.h"

#if !defined(HRR_BENCH_TP_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define HRR_BENCH_TP_H
#include <lttng/tracepoint.h>
#include <stdint.h>

/* A call of one or two words. */
LTTNG_UST_TRACEPOINT_EVENT(hrr_bench, enter,
    LTTNG_UST_TP_ARGS(uint32_t, api, uint64_t, first, uint64_t, second),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(uint32_t, api, api)
        lttng_ust_field_integer(uint64_t, first, first)
        lttng_ust_field_integer(uint64_t, second, second)))

/* A launch: kernel, grid and block, shared bytes, stream, and the bytes of its arguments. */
LTTNG_UST_TRACEPOINT_EVENT(hrr_bench, launch,
    LTTNG_UST_TP_ARGS(uint32_t, api, const uint64_t *, words, const uint8_t *, arguments),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(uint32_t, api, api)
        lttng_ust_field_array(uint64_t, words, words, 8)
        lttng_ust_field_array(uint8_t, arguments, arguments, 48)))

LTTNG_UST_TRACEPOINT_EVENT(hrr_bench, leave,
    LTTNG_UST_TP_ARGS(int32_t, code, uint64_t, result),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(int32_t, code, code)
        lttng_ust_field_integer(uint64_t, result, result)))
#endif

#include <lttng/tracepoint-event.h>
