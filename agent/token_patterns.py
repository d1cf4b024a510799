"""Find tokens and keys by their forms, to redact them whether or not the configuration knows them.

The patterns take linear time: a repetition either ends the pattern, or is bounded, or cannot begin again inside itself.
"""

from __future__ import annotations

import re

# The formats: docs of the services, and the lists of secret scanners (GitHub's, gitleaks).
_TOKENS = (
    r"xox[a-z](?:\.xox[a-z])?-[\w.%-]{8,}",  # Slack: bot, user, refresh, configuration
    r"xapp-[\w-]{8,}",  # Slack: app level
    r"gh[opusr]_[A-Za-z0-9]{16,}",  # GitHub
    r"github_pat_\w{16,}",
    r"gl[a-z]{2,6}-[\w.-]{16,}",  # GitLab: glpat-, gldt-, glrt-, glptt-
    r"(?:AKIA|ASIA)[A-Z0-9]{16}",  # AWS: id of an access key
    r"AIza[\w-]{30,}",  # Google: API key
    r"ya29\.[\w.-]{16,}",  # Google: access token
    r"GOCSPX-[\w-]{16,}",  # Google: client secret
    r"1//0[\w-]{16,}",  # Google: refresh token
    r"[MNO][\w-]{22,28}\.[\w-]{5,8}\.[\w-]{25,}",  # Discord: bot
    r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}",  # Stripe
    r"whsec_[\w+/=-]{16,}",  # Stripe: webhooks
    r"sk-[A-Za-z0-9_-]{16,}",  # OpenAI, Anthropic (sk-ant-) and those that look like it
    r"gsk_[A-Za-z0-9]{16,}",  # Groq
    r"xai-[A-Za-z0-9]{16,}",
    r"hf_[A-Za-z0-9]{16,}",  # Hugging Face
    r"npm_[A-Za-z0-9]{16,}",
    r"pypi-[\w-]{16,}",
    r"[\w~.-]{3}[78]Q~[\w~.-]{30,}",  # Azure: client secret
    r"\d{6,12}:[A-Za-z0-9_-]{30,}",  # Telegram: bot
    r"SG\.[\w-]{16,64}\.[\w-]{16,}",  # SendGrid
    r"SK[0-9a-f]{32}",  # Twilio
    r"dop_v1_[0-9a-f]{32,}",  # DigitalOcean
    r"lsv2_[a-z]{2}_\w{16,}",  # LangSmith
    r"fawn_[\w-]{43}",  # Fawn: a key of the HTTP API
)
_BEFORE = r"(?:(?<![A-Za-z0-9])|(?<=/bot))"  # of a word, or in a URL of Telegram
SECRET_PATTERNS = (
    re.compile(_BEFORE + f"(?:{'|'.join(_TOKENS)})"),
    re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)*"),  # a JSON web token
    re.compile(
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:[^-]|-(?!----))*(?:-----END[A-Z0-9 ]{0,50}-----)?"
    ),
    re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)"),  # user and password of a URL
    re.compile(r"(?i)(?<=bearer )[\w.~+/=-]{8,}"),
    re.compile(r"(?i)(?<=authorization: basic )[\w+/=-]{8,}"),
    re.compile(r"(?<=hooks\.slack\.com/services/)[\w/]+"),
    re.compile(r"(?<=/api/webhooks/)\d+/[\w-]+"),  # Discord
    re.compile(r"(?i)(?<=accountkey=)[\w+/=]{16,}|(?<=sharedaccesskey=)[\w+/=]{16,}"),  # Azure: connection strings
    re.compile(r"(?i)(?<=[?&]sig=)[\w%+/=-]{16,}"),  # Azure: shared access signature
    re.compile(r"(?i)(?<=aws_secret_access_key)\W{1,5}[\w+/=]{30,}|(?<=secretaccesskey)\W{1,5}[\w+/=]{30,}"),
)
