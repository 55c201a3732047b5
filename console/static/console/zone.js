"use strict";

// Tells `console.middleware.viewer_zone` where the reader is. Without that middleware nobody reads it.
{
  const zone = encodeURIComponent(Intl.DateTimeFormat().resolvedOptions().timeZone || "");
  if (zone && !document.cookie.split("; ").includes(`pikku_zone=${zone}`)) {
    const secure = location.protocol === "https:" ? "; secure" : "";
    document.cookie = `pikku_zone=${zone}; path=/; max-age=31536000; samesite=lax${secure}`;
  }
}
