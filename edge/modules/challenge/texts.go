package challenge

import (
	"bytes"
	"strconv"

	"sluice/edge/message"
)

// texts are what the page says in a language.
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
		title:    "One moment, please",
		works: "This site is very busy. Your browser is doing a short calculation, " +
			"then the page opens by itself.",
		script: "This site is very busy, and checks browsers with a short calculation. " +
			"That needs JavaScript, which is off here. Please allow it for this site, " +
			"or come back in a few minutes.",
		cookies: "This site is very busy, and checks browsers once. Yours refuses the cookie that " +
			"remembers it. Please allow cookies for this site, then try again.",
		failed: "The check could not be finished. Please try again.",
		again:  "The check was done a moment ago, and is wanted again. Please try again.",
		try:    "Try again",
		method: "This site is very busy, and has not accepted what you sent. Please open a page " +
			"of this site in the same browser, wait until it is there, and send it once more.",
	},
	{
		language: "de",
		title:    "Einen Moment, bitte",
		works: "Diese Seite ist stark ausgelastet. Ihr Browser rechnet kurz, " +
			"danach öffnet sich die Seite von selbst.",
		script: "Diese Seite ist stark ausgelastet und prüft Browser mit einer kurzen Rechnung. " +
			"Dafür braucht es JavaScript, das hier ausgeschaltet ist. Bitte erlauben Sie es für " +
			"diese Seite, oder kommen Sie in einigen Minuten wieder.",
		cookies: "Diese Seite ist stark ausgelastet und prüft Browser einmal. Ihrer nimmt das " +
			"Cookie nicht an, das die Prüfung festhält. Bitte erlauben Sie Cookies für diese " +
			"Seite und versuchen Sie es noch einmal.",
		failed: "Die Prüfung ließ sich nicht abschließen. Bitte versuchen Sie es noch einmal.",
		again: "Die Prüfung ist eben erst gelaufen und wird erneut verlangt. " +
			"Bitte versuchen Sie es noch einmal.",
		try: "Noch einmal versuchen",
		method: "Diese Seite ist stark ausgelastet und hat Ihre Eingabe nicht angenommen. Bitte " +
			"öffnen Sie im selben Browser eine Seite dieser Website, warten Sie, bis sie da ist, " +
			"und senden Sie die Eingabe noch einmal.",
	},
	{
		language: "fr",
		title:    "Un instant, s’il vous plaît",
		works: "Ce site est très sollicité. Votre navigateur effectue un court calcul, " +
			"puis la page s’ouvre d’elle-même.",
		script: "Ce site est très sollicité et vérifie les navigateurs par un court calcul. " +
			"Il faut pour cela JavaScript, qui est désactivé ici. Veuillez l’autoriser pour ce " +
			"site, ou revenez dans quelques minutes.",
		cookies: "Ce site est très sollicité et vérifie les navigateurs une fois. Le vôtre refuse " +
			"le cookie qui retient la vérification. Veuillez autoriser les cookies pour ce site, " +
			"puis réessayez.",
		failed: "La vérification n’a pas pu être terminée. Veuillez réessayer.",
		again: "La vérification vient d’être faite et est de nouveau demandée. " +
			"Veuillez réessayer.",
		try: "Réessayer",
		method: "Ce site est très sollicité et n’a pas accepté votre envoi. Veuillez ouvrir une " +
			"page de ce site dans le même navigateur, attendre qu’elle s’affiche, puis envoyer de " +
			"nouveau.",
	},
	{
		language: "es",
		title:    "Espere un instante, por favor",
		works: "Este sitio tiene mucho tráfico. Su navegador hace un breve cálculo " +
			"y después la página se abre sola.",
		script: "Este sitio tiene mucho tráfico y comprueba los navegadores con un breve cálculo. " +
			"Para ello hace falta JavaScript, que aquí está desactivado. Permítalo para este " +
			"sitio o vuelva dentro de unos minutos.",
		cookies: "Este sitio tiene mucho tráfico y comprueba los navegadores una vez. El suyo " +
			"rechaza la cookie que guarda la comprobación. Permita las cookies para este sitio e " +
			"inténtelo de nuevo.",
		failed: "No se pudo completar la comprobación. Inténtelo de nuevo.",
		again:  "La comprobación acaba de hacerse y se pide otra vez. Inténtelo de nuevo.",
		try:    "Intentar de nuevo",
		method: "Este sitio tiene mucho tráfico y no ha aceptado su envío. Abra una página de " +
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
