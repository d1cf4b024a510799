// Ask who is signed in while the modules still load. A link signs in first.
if (location.pathname !== "/login") globalThis.early = fetch("/page/me");
