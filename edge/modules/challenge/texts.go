package challenge

import (
	"bytes"
	"strconv"

	"sluice/edge/message"
)

// texts are what the page says in a language. The title is true of whatever else is said: without
// script nothing can change it.
type texts struct {
	language                    string
	title, works, script        string
	cookies, failed, again, try string
	method                      string // to a request that is not sent again
}

// languages are those that the page is in, the one for everybody else first.
var languages = [...]texts{
	{
		language: "en",
		title:    "This site is very busy",
		works: "One moment, please. Your browser is doing a short calculation, " +
			"then the page opens by itself.",
		script: "Browsers are checked with a short calculation. " +
			"That needs JavaScript, which is off here. Please allow it for this site, " +
			"or come back in a few minutes.",
		cookies: "Browsers are checked once. Yours refuses the cookie that " +
			"remembers it. Please allow cookies for this site, then try again.",
		failed: "The check could not be finished. Please try again.",
		again:  "The check was done a moment ago, and is wanted again. Please try again.",
		try:    "Try again",
		method: "What you sent has not been accepted. Please open a page " +
			"of this site in the same browser, wait until it is there, and send it once more.",
	},
	{
		language: "de",
		title:    "Diese Seite ist stark ausgelastet",
		works: "Einen Moment, bitte. Ihr Browser rechnet kurz, " +
			"danach öffnet sich die Seite von selbst.",
		script: "Browser werden mit einer kurzen Rechnung geprüft. " +
			"Dafür braucht es JavaScript, das hier ausgeschaltet ist. Bitte erlauben Sie es für " +
			"diese Seite, oder kommen Sie in einigen Minuten wieder.",
		cookies: "Browser werden einmal geprüft. Ihrer nimmt das " +
			"Cookie nicht an, das die Prüfung festhält. Bitte erlauben Sie Cookies für diese " +
			"Seite und versuchen Sie es noch einmal.",
		failed: "Die Prüfung ließ sich nicht abschließen. Bitte versuchen Sie es noch einmal.",
		again: "Die Prüfung ist eben erst gelaufen und wird erneut verlangt. " +
			"Bitte versuchen Sie es noch einmal.",
		try: "Noch einmal versuchen",
		method: "Ihre Eingabe wurde nicht angenommen. Bitte " +
			"öffnen Sie im selben Browser eine Seite dieser Website, warten Sie, bis sie da ist, " +
			"und senden Sie die Eingabe noch einmal.",
	},
	{
		language: "fr",
		title:    "Ce site est très sollicité",
		works: "Un instant, s’il vous plaît. Votre navigateur effectue un court calcul, " +
			"puis la page s’ouvre d’elle-même.",
		script: "Les navigateurs sont vérifiés par un court calcul. " +
			"Il faut pour cela JavaScript, qui est désactivé ici. Veuillez l’autoriser pour ce " +
			"site, ou revenez dans quelques minutes.",
		cookies: "Les navigateurs sont vérifiés une fois. Le vôtre refuse " +
			"le cookie qui retient la vérification. Veuillez autoriser les cookies pour ce site, " +
			"puis réessayez.",
		failed: "La vérification n’a pas pu être terminée. Veuillez réessayer.",
		again: "La vérification vient d’être faite et est de nouveau demandée. " +
			"Veuillez réessayer.",
		try: "Réessayer",
		method: "Votre envoi n’a pas été accepté. Veuillez ouvrir une " +
			"page de ce site dans le même navigateur, attendre qu’elle s’affiche, puis envoyer de " +
			"nouveau.",
	},
	{
		language: "es",
		title:    "Este sitio tiene mucho tráfico",
		works: "Espere un instante, por favor. Su navegador hace un breve cálculo " +
			"y después la página se abre sola.",
		script: "Los navegadores se comprueban con un breve cálculo. " +
			"Para ello hace falta JavaScript, que aquí está desactivado. Permítalo para este " +
			"sitio o vuelva dentro de unos minutos.",
		cookies: "Los navegadores se comprueban una vez. El suyo " +
			"rechaza la cookie que guarda la comprobación. Permita las cookies para este sitio e " +
			"inténtelo de nuevo.",
		failed: "No se pudo completar la comprobación. Inténtelo de nuevo.",
		again:  "La comprobación acaba de hacerse y se pide otra vez. Inténtelo de nuevo.",
		try:    "Intentar de nuevo",
		method: "Su envío no se ha aceptado. Abra una página de " +
			"este sitio en el mismo navegador, espere a que aparezca y envíelo de nuevo.",
	},
}

const (
	languageBytes  = 256 // of Accept-Language that are read; browsers send a fifth
	languageRanges = 32
)

// languageOf is which of languages a client likes best (RFC 9110, 12.5.4); of those that it likes
// alike, the first that it names.
func languageOf(h *message.Head) (best int) {
	said := h.First("accept-language")
	said = said[:min(len(said), languageBytes)]
	most := 0
	for n := 0; len(said) > 0 && n < languageRanges; n++ {
		var one []byte
		one, said, _ = bytes.Cut(said, []byte{','})
		tag, weight, weighed := bytes.Cut(one, []byte{';'})
		tag, _, _ = bytes.Cut(bytes.TrimSpace(tag), []byte{'-'})
		q := 1000
		if weighed {
			_, text, _ := bytes.Cut(weight, []byte{'='})
			f, err := strconv.ParseFloat(string(bytes.TrimSpace(text)), 64)
			if err != nil || !(f >= 0 && f <= 1) {
				continue
			}
			q = int(1000 * f)
		}
		for i := range languages {
			if q > most && message.EqualFold(tag, languages[i].language) {
				best, most = i, q
			}
		}
	}
	return best
}
