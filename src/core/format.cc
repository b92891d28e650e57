// Compiles the non-template part of fmt once. Debian ships that part only as a shared library, which may be missing on
// another machine. Header-only use would compile it in every file, which takes a third of the build time.
#ifndef FMT_HEADER_ONLY
#include <fmt/format-inl.h>

// The macros depend on the fmt version; CMakeLists.txt checks that this list matches it.
FMT_BEGIN_NAMESPACE
namespace detail {

template dragonbox::decimal_fp<float> dragonbox::to_decimal(float) noexcept;
template dragonbox::decimal_fp<double> dragonbox::to_decimal(double) noexcept;
template locale_ref::locale_ref(const std::locale&);
template std::locale locale_ref::get<std::locale>() const;
template thousands_sep_result<char> thousands_sep_impl(locale_ref);
template char decimal_point_impl(locale_ref);
template void buffer<char>::append(const char*, const char*);
template void vformat_to(buffer<char>&, string_view, basic_format_args<buffer_context<char>>, locale_ref);

}  // namespace detail
FMT_END_NAMESPACE
#endif
